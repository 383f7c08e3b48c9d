//! Which program a request is for: the mount point of its path, and below that the first component that is a file. It executes
//! nothing. Workers run it.
//!
//! A path is looked up below its root with the mechanism of static files, so it can't leave the root.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bolide_contract::settings::Cgi;
use bolide_files::roots::{FileType, OpenedRoot, Refusal, ResolvedPath, Root, as_path};
use nix::unistd::{AccessFlags, access};

/// The longest path in bytes that Linux accepts (PATH_MAX).
const MAX_PATH_BYTES: usize = 4096;
/// Maximum number of components that are looked up.
const MAX_COMPONENTS: usize = 64;

/// The configured programs and directories of programs.
pub struct Places {
    places: Vec<Place>,
    /// Extensions, and the programs that execute files with them.
    helpers: Vec<(Vec<u8>, PathBuf)>,
    allowed_extensions: Vec<Vec<u8>>,
    indexes: Vec<String>,
    safe: Vec<PathBuf>,
}

struct Place {
    /// Without a slash at its end.
    mount: Vec<u8>,
    root: Root,
}

/// The program of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Script<'p> {
    pub file: PathBuf,
    /// The program that executes the file; `None`: the file is a program itself.
    pub helper: Option<PathBuf>,
    /// The part of the path that identifies the program.
    pub name: Vec<u8>,
    /// The rest of the path.
    pub path_info: &'p [u8],
    /// The configured directory, or that of the configured program.
    pub root: PathBuf,
    /// The configuration consists of this one program.
    pub is_file: bool,
}

/// Why a request does not lead to a program.
#[derive(Debug, PartialEq, Eq)]
pub enum NoScript {
    /// The file does not exist, or the path is outside all configured places.
    Missing,
    /// It is there and must not be executed, for this reason.
    Forbidden(String),
    /// A directory without its slash: the client is sent to the path with it.
    Redirect,
    /// The system has refused the look-up, for this reason.
    Broken(String),
}

impl Places {
    /// `search` is the value of PATH, in which helpers are found.
    ///
    /// # Errors
    /// A helper, or the file or directory of a place, does not exist: a line for people.
    pub fn new(settings: &Cgi, search: &[u8]) -> Result<Places, String> {
        for place in &settings.places {
            if let Err(error) = place.path.metadata() {
                return Err(format!("cgi = {} at {}: {error}", place.path.display(), place.origin));
            }
        }
        let helper = |(extension, program): &(String, String)| match find_program(program, search) {
            Some(found) => Ok((extension.clone().into_bytes(), found)),
            None => Err(format!("cgi-helper = {extension}={program}: `{program}` is not in PATH")),
        };
        let place = |place: &bolide_contract::settings::CgiPlace| Place {
            mount: place.mount.trim_end_matches('/').as_bytes().to_vec(),
            root: Root::new(place.path.clone()),
        };
        Ok(Places {
            places: settings.places.iter().map(place).collect(),
            helpers: settings.helpers.iter().map(helper).collect::<Result<_, _>>()?,
            allowed_extensions: settings.allowed_extensions.iter().map(|extension| extension.clone().into_bytes()).collect(),
            indexes: settings.indexes.clone(),
            safe: settings.safe.clone(),
        })
    }

    /// Finds the program of a path, which is percent-decoded.
    ///
    /// # Errors
    /// There is none.
    pub fn find<'p>(&self, path: &'p [u8], now_ms: u64) -> Result<Script<'p>, NoScript> {
        if path.len() > MAX_PATH_BYTES || path.contains(&0) {
            return Err(NoScript::Missing);
        }
        let is_below = |place: &&Place| {
            path.strip_prefix(&place.mount[..]).is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || place.mount.is_empty())
        };
        // The longest one; of equal ones the last.
        let place = self.places.iter().filter(is_below).max_by_key(|place| place.mount.len()).ok_or(NoScript::Missing)?;
        let root = place.root.open(now_ms).map_err(|refusal| no_script(refusal, &String::from_utf8_lossy(&place.mount)))?;
        let below = &path[place.mount.len()..];
        let found = match &root.file_name {
            Some(name) => {
                let (resolved, _) = root.stat(name, &self.safe).map_err(|refusal| no_script(refusal, &shown(path)))?;
                Found { file: resolved.path, end: 0, index: None }
            }
            None => self.walk(&root, below, path)?,
        };
        self.check(&found.file)?;
        let mut name = path[..place.mount.len() + found.end].to_vec();
        name.extend_from_slice(found.index.unwrap_or_default().as_bytes());
        let is_file = root.file_name.is_some();
        let directory = if is_file { found.file.parent().unwrap_or(Path::new("/")) } else { root.path() };
        Ok(Script {
            helper: self.helper(&found.file),
            name,
            path_info: &below[found.end..],
            root: directory.to_owned(),
            is_file,
            file: found.file,
        })
    }

    /// Looks up the components of the path until one is not a directory.
    fn walk(&self, root: &OpenedRoot, below: &[u8], path: &[u8]) -> Result<Found<'_>, NoScript> {
        let mut end = 0;
        let mut relative = Vec::with_capacity(below.len());
        for _ in 0..MAX_COMPONENTS {
            let begin = end + below[end..].iter().take_while(|byte| **byte == b'/').count();
            if begin == below.len() {
                return self.index(root, &relative, below, path);
            }
            end = begin + below[begin..].iter().take_while(|byte| **byte != b'/').count();
            let component = &below[begin..end];
            if matches!(component, b"." | b"..") {
                return Err(NoScript::Missing);
            }
            if !relative.is_empty() {
                relative.push(b'/');
            }
            relative.extend_from_slice(component);
            match self.look_up(root, &relative, path)? {
                (resolved, FileType::File(_)) => return Ok(Found { file: resolved.path, end, index: None }),
                (_, FileType::Directory) => {}
                (_, FileType::Other) => return Err(NoScript::Missing),
            }
        }
        Err(NoScript::Missing)
    }

    /// The file that answers for a directory.
    fn index(&self, root: &OpenedRoot, relative: &[u8], below: &[u8], path: &[u8]) -> Result<Found<'_>, NoScript> {
        if !path.ends_with(b"/") {
            return Err(NoScript::Redirect);
        }
        for index in &self.indexes {
            let file = [relative, if relative.is_empty() { b"" } else { b"/" }, index.as_bytes()].concat();
            match self.look_up(root, &file, path) {
                Ok((resolved, FileType::File(_))) => {
                    return Ok(Found { file: resolved.path, end: below.len(), index: Some(index) });
                }
                Ok(_) | Err(NoScript::Missing) => {}
                Err(other) => return Err(other),
            }
        }
        Err(NoScript::Missing)
    }

    fn look_up(&self, root: &OpenedRoot, relative: &[u8], path: &[u8]) -> Result<(ResolvedPath, FileType), NoScript> {
        root.stat(as_path(relative), &self.safe).map_err(|refusal| no_script(refusal, &shown(path)))
    }

    /// Whether the file may be executed: by its extension, and by its mode if no helper executes it.
    fn check(&self, file: &Path) -> Result<(), NoScript> {
        let name = file.as_os_str().as_bytes();
        let is_allowed =
            self.allowed_extensions.is_empty() || self.allowed_extensions.iter().any(|extension| name.ends_with(extension));
        if !is_allowed {
            return Err(NoScript::Forbidden(format!("cgi-allowed-ext does not allow {}", file.display())));
        }
        if self.helper(file).is_none() && access(file, AccessFlags::X_OK).is_err() {
            let reason = format!("{} may not be executed: it needs the mode of a program (chmod +x)", file.display());
            return Err(NoScript::Forbidden(reason));
        }
        Ok(())
    }

    fn helper(&self, file: &Path) -> Option<PathBuf> {
        let name = file.as_os_str().as_bytes();
        self.helpers.iter().find(|(extension, _)| name.ends_with(extension)).map(|(_, helper)| helper.clone())
    }
}

/// A file below a root.
struct Found<'s> {
    file: PathBuf,
    /// The end of its name in the path below the mount point.
    end: usize,
    /// What the path lacks of its name.
    index: Option<&'s str>,
}

fn no_script(refusal: Refusal, path: &str) -> NoScript {
    match refusal {
        Refusal::Missing => NoScript::Missing,
        Refusal::Denied => NoScript::Forbidden(format!("{path}: the application's user may not look there")),
        Refusal::Outside => {
            NoScript::Forbidden(format!("{path}: a link leads out of the directory of cgi; cgi-safe allows other directories"))
        }
        Refusal::Exhausted(errno) | Refusal::Broken(errno) => NoScript::Broken(format!("{path}: {}", errno.desc())),
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).replace(|character: char| character.is_control(), "?")
}

/// Finds a program by the value of PATH, unless it is a path.
fn find_program(program: &str, search: &[u8]) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| file.is_file() && access(file, AccessFlags::X_OK).is_ok();
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    let directories = search.split(|byte| *byte == b':').filter(|directory| !directory.is_empty());
    directories.map(|directory| as_path(directory).join(program)).find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::settings::CgiPlace;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Tree {
            let tree = std::env::temp_dir().join(format!("bolide-cgi-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&tree);
            fs::create_dir_all(&tree).expect("created");
            Tree(tree.canonicalize().expect("there"))
        }

        fn file(&self, name: &str, mode: u32) -> PathBuf {
            let file = self.0.join(name);
            fs::create_dir_all(file.parent().expect("below")).expect("created");
            fs::write(&file, "#!/bin/sh\n").expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
            file
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn settings(places: &[(&str, &Path)]) -> Cgi {
        let place = |(mount, path): &(&str, &Path)| CgiPlace {
            mount: (*mount).to_owned(),
            path: (*path).to_owned(),
            origin: "app.ini:1".to_owned(),
        };
        Cgi { places: places.iter().map(place).collect(), ..Cgi::default() }
    }

    /// The file, the name and the rest of the path.
    fn found(places: &Places, path: &str) -> Result<(PathBuf, String, String), NoScript> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        places.find(path.as_bytes(), 0).map(|script| (script.file, text(&script.name), text(script.path_info)))
    }

    #[test]
    fn the_first_component_that_is_a_file_is_the_program() {
        let tree = Tree::new("walk");
        let (one, deep) = (tree.file("one.cgi", 0o755), tree.file("a/b/two", 0o755));
        tree.file("plain", 0o644);
        let places = Places::new(&settings(&[("/cgi-bin", &tree.0)]), b"").expect("places");
        let script = |file: &PathBuf, name: &str, rest: &str| Ok((file.clone(), name.to_owned(), rest.to_owned()));
        for (path, wanted) in [
            ("/cgi-bin/one.cgi", script(&one, "/cgi-bin/one.cgi", "")),
            ("/cgi-bin/one.cgi/", script(&one, "/cgi-bin/one.cgi", "/")),
            ("/cgi-bin/one.cgi/../x//y", script(&one, "/cgi-bin/one.cgi", "/../x//y")),
            ("/cgi-bin/a/b/two/c", script(&deep, "/cgi-bin/a/b/two", "/c")),
            ("/cgi-bin//a//b/two", script(&deep, "/cgi-bin//a//b/two", "")),
            ("/cgi-binary/one.cgi", Err(NoScript::Missing)),
            ("/one.cgi", Err(NoScript::Missing)),
            ("/cgi-bin/none", Err(NoScript::Missing)),
            ("/cgi-bin/a/../one.cgi", Err(NoScript::Missing)),
            ("/cgi-bin/one.cgi\0x", Err(NoScript::Missing)),
            ("/cgi-bin/a", Err(NoScript::Redirect)),
            ("/cgi-bin", Err(NoScript::Redirect)),
            ("/cgi-bin/a/", Err(NoScript::Missing)),
        ] {
            assert_eq!(found(&places, path), wanted, "{path}");
        }
        let plain = found(&places, "/cgi-bin/plain").expect_err("no program");
        assert!(matches!(&plain, NoScript::Forbidden(reason) if reason.contains("chmod +x")), "{plain:?}");
        assert_eq!(found(&places, &format!("/cgi-bin{}", "/x".repeat(3000))), Err(NoScript::Missing));
    }

    #[test]
    fn extensions_helpers_and_indexes_choose_the_program() {
        let tree = Tree::new("choice");
        let (page, index) = (tree.file("page.pl", 0o644), tree.file("sub/index.cgi", 0o755));
        let mut cgi = settings(&[("", &tree.0)]);
        cgi.helpers = vec![(".pl".to_owned(), "sh".to_owned())];
        cgi.indexes = vec!["index.pl".to_owned(), "index.cgi".to_owned()];
        cgi.allowed_extensions = vec![".pl".to_owned(), ".cgi".to_owned()];
        tree.file("other.sh", 0o755);
        let places = Places::new(&cgi, b"/usr/bin:/bin").expect("places");
        assert_eq!(found(&places, "/page.pl").map(|(file, ..)| file), Ok(page));
        let helper = places.find(b"/page.pl", 0).expect("found").helper.expect("a helper");
        assert!(helper.ends_with("sh") && helper.is_absolute(), "{}", helper.display());
        assert_eq!(found(&places, "/sub/"), Ok((index, "/sub/index.cgi".to_owned(), String::new())));
        assert!(matches!(found(&places, "/other.sh"), Err(NoScript::Forbidden(reason)) if reason.contains("cgi-allowed-ext")));
        cgi.helpers = vec![(".pl".to_owned(), "no-such-program".to_owned())];
        assert!(Places::new(&cgi, b"/usr/bin").err().expect("none").contains("no-such-program"));
    }

    #[test]
    fn a_link_out_of_the_directory_is_refused_unless_it_is_safe() {
        let (tree, other) = (Tree::new("inside"), Tree::new("outside"));
        let outside = other.file("out.cgi", 0o755);
        tree.file("in.cgi", 0o755);
        symlink(&outside, tree.0.join("out.cgi")).expect("linked");
        symlink("in.cgi", tree.0.join("again.cgi")).expect("linked");
        let mut cgi = settings(&[("", &tree.0)]);
        let refused = found(&Places::new(&cgi, b"").expect("places"), "/out.cgi").expect_err("outside");
        assert!(matches!(&refused, NoScript::Forbidden(reason) if reason.contains("cgi-safe")), "{refused:?}");
        assert!(found(&Places::new(&cgi, b"").expect("places"), "/again.cgi").is_ok());
        cgi.safe = vec![other.0.clone()];
        assert_eq!(found(&Places::new(&cgi, b"").expect("places"), "/out.cgi").map(|(file, ..)| file), Ok(outside));
    }

    #[test]
    fn a_single_program_answers_every_path_and_the_longest_mount_wins() {
        let tree = Tree::new("single");
        let (all, deep) = (tree.file("all.cgi", 0o755), tree.file("deep.cgi", 0o755));
        let places = Places::new(&settings(&[("", &all), ("/deep/", &deep)]), b"").expect("places");
        assert_eq!(found(&places, "/a/b"), Ok((all.clone(), String::new(), "/a/b".to_owned())));
        assert_eq!(found(&places, "/"), Ok((all, String::new(), "/".to_owned())));
        assert_eq!(found(&places, "/deep/x"), Ok((deep.clone(), "/deep".to_owned(), "/x".to_owned())));
        assert_eq!(found(&places, "/deep"), Ok((deep, "/deep".to_owned(), String::new())));
        let error = Places::new(&settings(&[("", Path::new("/no/such"))]), b"").err().expect("none");
        assert!(error.contains("cgi = /no/such at app.ini:1"), "{error}");
    }
}
