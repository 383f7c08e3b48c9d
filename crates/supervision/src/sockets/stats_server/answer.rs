//! An answer of the server of statistics: a head of HTTP and a page that clients share. It knows neither sockets nor numbers. The
//! master makes it.

use std::rc::Rc;

/// The content of an answer, shared by the clients that get it.
pub type Page = Rc<[u8]>;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The head; empty for clients that do not speak HTTP.
    pub head: String,
    /// The content.
    pub page: Page,
    /// Events follow ([`super::StatsServer::publish`]), and the connection stays open.
    pub is_stream: bool,
}

impl Answer {
    /// The page alone, for clients that do not speak HTTP.
    pub fn bare(page: Page) -> Answer {
        Answer { head: String::new(), page, is_stream: false }
    }

    /// The page of uWSGI's statistics over HTTP, with uWSGI's header fields, plus the length, so that a client can recognize a
    /// truncated page.
    pub fn of_uwsgi(page: Page) -> Answer {
        let head = format!(
            "HTTP/1.0 200 OK\r\nConnection: close\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            page.len()
        );
        Answer { head, page, is_stream: false }
    }

    /// A page of this type. No other site may use it, and no cache may keep it.
    pub fn page(status: u16, content_type: &str, page: Page) -> Answer {
        Answer::with_fields(status, content_type, "", page)
    }

    /// The same with additional header fields, each with its line end.
    pub fn with_fields(status: u16, content_type: &str, fields: &str, page: Page) -> Answer {
        let head = format!(
            "HTTP/1.1 {status} {}\r\nConnection: close\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{fields}\r\n",
            reason(status),
            page.len()
        );
        Answer { head, page, is_stream: false }
    }

    /// A line of plain text.
    pub fn text(status: u16, text: &str) -> Answer {
        Answer::page(status, "text/plain; charset=utf-8", Page::from(text.as_bytes()))
    }

    /// The beginning of a stream of events (`text/event-stream`), with the first of them.
    pub fn events(first: Page) -> Answer {
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\
                    X-Content-Type-Options: nosniff\r\n\r\n";
        Answer { head: head.to_owned(), page: first, is_stream: true }
    }

    /// The answer to HEAD: the head alone.
    pub fn without_page(self) -> Answer {
        Answer { page: Page::from(Vec::new()), is_stream: false, ..self }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        _ => "Service Unavailable",
    }
}
