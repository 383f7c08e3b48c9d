//! The programs whose command lines are translated. Pure data.

/// A program whose flags are rows of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    Gunicorn,
    Uvicorn,
    Granian,
    Hypercorn,
    Waitress,
    Flask,
    FastApi,
    Daphne,
}

impl Server {
    pub const ALL: [Server; 8] = [
        Server::Gunicorn,
        Server::Uvicorn,
        Server::Granian,
        Server::Hypercorn,
        Server::Waitress,
        Server::Flask,
        Server::FastApi,
        Server::Daphne,
    ];

    /// The command that starts it.
    pub fn command(self) -> &'static str {
        match self {
            Server::Gunicorn => "gunicorn",
            Server::Uvicorn => "uvicorn",
            Server::Granian => "granian",
            Server::Hypercorn => "hypercorn",
            Server::Waitress => "waitress-serve",
            Server::Flask => "flask run",
            Server::FastApi => "fastapi run",
            Server::Daphne => "daphne",
        }
    }

    /// The host and the port that it listens on if its command line names neither.
    pub fn default_address(self) -> (&'static str, &'static str) {
        match self {
            Server::Waitress => ("0.0.0.0", "8080"),
            Server::FastApi => ("0.0.0.0", "8000"),
            Server::Flask => ("127.0.0.1", "5000"),
            Server::Gunicorn | Server::Uvicorn | Server::Granian | Server::Hypercorn | Server::Daphne => ("127.0.0.1", "8000"),
        }
    }
}
