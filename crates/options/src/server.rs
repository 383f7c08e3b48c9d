//! The programs whose command lines are translated. Pure data.

bolide_contract::with_words! {
    /// A program whose flags are rows of the table.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Server {
        Gunicorn = "gunicorn",
        Uvicorn = "uvicorn",
        Granian = "granian",
        Hypercorn = "hypercorn",
        Waitress = "waitress-serve",
        Flask = "flask run",
        FastApi = "fastapi run",
        Daphne = "daphne",
    }
    /// The command that starts it.
    pub fn command() -> &'static str;
}

impl Server {
    /// The host and the port that it listens on if neither is on its command line.
    pub fn default_address(self) -> (&'static str, &'static str) {
        match self {
            Server::Waitress => ("0.0.0.0", "8080"),
            Server::FastApi => ("0.0.0.0", "8000"),
            Server::Flask => ("127.0.0.1", "5000"),
            Server::Gunicorn | Server::Uvicorn | Server::Granian | Server::Hypercorn | Server::Daphne => ("127.0.0.1", "8000"),
        }
    }
}
