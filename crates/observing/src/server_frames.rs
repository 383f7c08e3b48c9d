//! Which functions of a stack are the server's own, in front of the application: those of the Python package, and those of the
//! standard library that call it. Views without them join those of equal calls. Pure.

/// The file whose module is the outermost function of a process of the server.
const OUTERMOST: &str = "/bolide/prototype.py";
/// Directories into which packages are installed, with that of the server.
const INSTALLED: [&str; 2] = ["/site-packages/bolide/", "/dist-packages/bolide/"];
/// Ends of the standard library's files that run threads and event loops.
const LIBRARY: [&str; 6] = [
    "/threading.py",
    "/asyncio/runners.py",
    "/asyncio/base_events.py",
    "/asyncio/events.py",
    "/asyncio/unix_events.py",
    "/contextlib.py",
];
/// Begins the files of modules that are compiled into Python.
const FROZEN: &str = "<frozen ";

/// The files of the server.
#[derive(Debug, Default)]
pub struct ServerFrames {
    /// The directory of the package, if a stack shows it.
    directory: Option<String>,
}

impl ServerFrames {
    /// Learns the directory of the package from the files of outermost functions.
    pub fn of<'a>(mut outermost: impl Iterator<Item = &'a str>) -> ServerFrames {
        let file = outermost.find(|file| file.ends_with(OUTERMOST));
        let directory = file.and_then(|file| file.rsplit_once('/')).map(|(directory, _)| format!("{directory}/"));
        ServerFrames { directory }
    }

    /// The number of functions in front of the application, from the files of a stack, the outermost one first. It is 0 if the
    /// stack has none of the application: then it is about the server.
    pub fn leading<'a>(&self, files: impl Iterator<Item = &'a str>) -> usize {
        let (mut leading, mut count) = (None, 0);
        for file in files {
            if leading.is_none() && !self.is_server(file) {
                leading = Some(count);
            }
            count += 1;
        }
        leading.unwrap_or(0)
    }

    fn is_server(&self, file: &str) -> bool {
        self.directory.as_ref().is_some_and(|directory| file.starts_with(directory.as_str()))
            || INSTALLED.iter().any(|directory| file.contains(directory))
            || LIBRARY.iter().any(|end| file.ends_with(end))
            || file.starts_with(FROZEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOTYPE: &str = "/srv/env/lib/python3.13/bolide/prototype.py";
    const THREADS: &str = "/srv/env/lib/python3.13/bolide/threads.py";
    const THREADING: &str = "/usr/lib/python3.13/threading.py";

    #[test]
    fn functions_in_front_of_the_application_are_the_servers() {
        let server = ServerFrames::of([THREADING, PROTOTYPE].into_iter());
        let leading = |files: &[&str]| server.leading(files.iter().copied());
        assert_eq!(leading(&[PROTOTYPE, PROTOTYPE, "/srv/shop/app.py", THREADING]), 2);
        assert_eq!(leading(&[THREADING, THREADS, "/srv/shop/app.py"]), 2);
        assert_eq!(leading(&["/srv/shop/app.py", PROTOTYPE]), 0);
        assert_eq!(leading(&[PROTOTYPE, "/usr/lib/python3.13/asyncio/runners.py", "/srv/shop/main.py"]), 2);
    }

    #[test]
    fn a_stack_of_the_server_alone_stays_whole_and_a_directory_of_the_same_name_is_not_the_servers() {
        assert_eq!(ServerFrames::of([PROTOTYPE].into_iter()).leading([PROTOTYPE, THREADING].into_iter()), 0);
        let unknown = ServerFrames::of([THREADING].into_iter());
        assert_eq!(unknown.leading(["/srv/bolide/app.py", "/srv/bolide/views.py"].into_iter()), 0);
        assert_eq!(unknown.leading(["/env/lib/site-packages/bolide/threads.py", "/srv/bolide/app.py"].into_iter()), 1);
    }
}
