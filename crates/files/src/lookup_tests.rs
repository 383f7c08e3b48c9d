//! The lookup on a real directory, with a clock that the test sets.

use std::fs::{self, OpenOptions};

use bolide_contract::files::{Cache as CacheSettings, Map as MapSettings, Precompressed};

use super::*;
use crate::answer::Body;

/// Far enough from 1970 for every file of the test to lie in the past.
const NOW: i64 = 4_000_000_000;

struct Scratch(PathBuf);

impl Scratch {
    fn new(files: &[(&str, &str)]) -> Scratch {
        let path = nix::unistd::mkdtemp(&std::env::temp_dir().join("bolide-lookup-XXXXXX")).expect("a directory");
        let scratch = Scratch(path);
        for (file, text) in files {
            scratch.write(file, text);
        }
        scratch
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
        fs::write(path, text).expect("a file");
    }

    fn settings(&self, maps: &[(&str, &str, MapKind)]) -> Settings {
        Settings {
            maps: maps
                .iter()
                .map(|(prefix, target, kind)| MapSettings {
                    prefix: (*prefix).to_owned(),
                    target: self.0.join(target),
                    kind: *kind,
                    origin: String::new(),
                })
                .collect(),
            document_root: false,
            missing: Missing::Fallback,
            mode: Mode::Direct,
            x_sendfile: bolide_contract::files::XSendfile::default(),
            index: vec!["index.html".to_owned()],
            skip: Vec::new(),
            safe: Vec::new(),
            dot_files: false,
            expires: Vec::new(),
            cache_control: None,
            immutable: Vec::new(),
            precompressed: Precompressed::default(),
            mime_files: Vec::new(),
            charset: None,
            cache: CacheSettings::default(),
            mounts: Vec::new(),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover temporary directory is harmless.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn files(settings: &Settings) -> Files {
    let mut problems = Vec::new();
    let files = Files::new(settings, &mut problems);
    assert_eq!(problems, Vec::<String>::new());
    files
}

fn find(files: &Files, path: &str, now_ms: u64) -> Option<Answer> {
    find_at(files, path, now_ms, NOW)
}

fn find_at(files: &Files, path: &str, now_ms: u64, now: i64) -> Option<Answer> {
    find_aside(files, path, now_ms, now, &|work| work())
}

fn find_aside(files: &Files, path: &str, now_ms: u64, now: i64, aside: &dyn Fn(&mut dyn FnMut())) -> Option<Answer> {
    let request = FileRequest {
        method: b"GET",
        path: path.as_bytes(),
        uri: path.as_bytes(),
        document_root: b"",
        conditions: Conditions::default(),
        now_ms,
        now,
        aside,
    };
    files.find(&request, &mut |text| panic!("{text}"))
}

/// Returns the body's text, or the status in brackets.
fn text(files: &Files, path: &str, now_ms: u64) -> String {
    use std::os::unix::fs::FileExt;
    match find(files, path, now_ms) {
        None => "the application".to_owned(),
        Some(answer) if answer.status != 200 => format!("[{}]", answer.status),
        Some(answer) => match answer.body {
            Body::Memory(content, range) => String::from_utf8_lossy(&content[range]).into_owned(),
            Body::File(part) => {
                let mut bytes = vec![0; (part.bytes.end - part.bytes.start) as usize];
                part.file.read_exact_at(&mut bytes, part.bytes.start).expect("it is all there");
                String::from_utf8_lossy(&bytes).into_owned()
            }
            _ => "no content".to_owned(),
        },
    }
}

#[test]
fn a_change_is_seen_within_a_second_and_content_is_always_whole() {
    let scratch = Scratch::new(&[("root/a", "first")]);
    let files = files(&scratch.settings(&[("/s", "root", MapKind::Replace)]));
    assert_eq!(text(&files, "/s/a", 0), "first");
    scratch.write("root/a", "second and longer");
    assert_eq!(text(&files, "/s/a", RECHECK_MS - 1), "first", "from memory, whole");
    assert_eq!(text(&files, "/s/a", RECHECK_MS), "second and longer");
    fs::remove_file(scratch.0.join("root/a")).expect("it was there");
    assert_eq!(text(&files, "/s/a", RECHECK_MS + 1), "second and longer");
    assert_eq!(text(&files, "/s/a", RECHECK_MS * 2), "the application");
    scratch.write("root/a", "again");
    assert_eq!(text(&files, "/s/a", RECHECK_MS * 2), "again", "what is missing is looked for each time");
}

#[test]
fn content_from_a_descriptor_is_never_older_than_its_head() {
    let large = "x".repeat(200_000);
    let scratch = Scratch::new(&[("root/a", &large)]);
    let files = files(&scratch.settings(&[("/s", "root", MapKind::Replace)]));
    assert_eq!(text(&files, "/s/a", 0).len(), 200_000);
    let file = OpenOptions::new().write(true).open(scratch.0.join("root/a")).expect("it is there");
    file.set_len(100_000).expect("ours");
    assert_eq!(text(&files, "/s/a", 1).len(), 100_000);
}

#[test]
fn two_changes_in_one_tick_of_the_clock_are_distinguished() {
    let scratch = Scratch::new(&[]);
    let files = files(&scratch.settings(&[("/s", "", MapKind::Replace)]));
    let content = |answer: Option<Answer>| match answer.map(|answer| answer.body) {
        Some(Body::Memory(content, range)) => content[range].to_vec(),
        _ => Vec::new(),
    };
    // Most of these pairs are written within one tick, which is a few milliseconds.
    for number in 0..30 {
        let (name, path) = (format!("{number}.txt"), format!("/s/{number}.txt"));
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
        scratch.write(&name, "one");
        assert_eq!(content(find_at(&files, &path, 0, now)), b"one");
        scratch.write(&name, "two");
        assert_eq!(content(find_at(&files, &path, RECHECK_MS, now)), b"two");
    }
}

#[test]
fn without_a_cache_every_request_looks_at_the_disk() {
    let scratch = Scratch::new(&[("root/a", "first")]);
    let mut settings = scratch.settings(&[("/s", "root", MapKind::Replace)]);
    settings.cache.files = 0;
    let files = files(&settings);
    assert_eq!(text(&files, "/s/a", 0), "first");
    scratch.write("root/a", "second");
    assert_eq!(text(&files, "/s/a", 0), "second");
}

#[test]
fn maps_are_searched_in_their_order_and_the_first_match_answers() {
    let scratch = Scratch::new(&[("one/a", "one"), ("two/a", "two"), ("two/b", "two"), ("three/s/c", "three")]);
    let files = files(&scratch.settings(&[
        ("/s", "one", MapKind::Replace),
        ("/s/", "two", MapKind::Replace),
        ("/s", "three", MapKind::Append),
    ]));
    for now_ms in [0, 1, RECHECK_MS * 3] {
        assert_eq!(text(&files, "/s/a", now_ms), "one");
        assert_eq!(text(&files, "/s/b", now_ms), "two");
        assert_eq!(text(&files, "/s/c", now_ms), "three");
        assert_eq!(text(&files, "/s/d", now_ms), "the application");
        assert_eq!(text(&files, "/t/a", now_ms), "the application");
    }
    scratch.write("one/b", "one");
    assert_eq!(text(&files, "/s/b", RECHECK_MS * 5), "one");
}

#[test]
fn a_directory_has_its_index_and_its_slash() {
    let scratch = Scratch::new(&[("root/d/index.html", "index"), ("root/e/x", "x"), ("root/index.html", "top")]);
    let files = files(&scratch.settings(&[("/s", "root", MapKind::Replace)]));
    for (path, is) in [
        ("/s/d/", "index"),
        ("/s/d", "[301]"),
        ("/s/", "top"),
        ("/s", "[301]"),
        ("/s/e/", "the application"),
        ("/s/e", "the application"),
        ("/s/e/x/", "the application"),
    ] {
        assert_eq!(text(&files, path, 0), is, "{path}");
    }
}

#[test]
fn ten_thousand_files_go_through_a_small_cache() {
    let scratch = Scratch::new(&[]);
    for number in 0..10_000 {
        let path = scratch.0.join("root").join(format!("{:02}", number % 100));
        fs::create_dir_all(&path).expect("a directory");
        fs::write(path.join(number.to_string()), number.to_string()).expect("a file");
    }
    let mut settings = scratch.settings(&[("/s", "root", MapKind::Replace)]);
    settings.cache = CacheSettings { files: 50, memory_bytes: 1 << 20 };
    let files = files(&settings);
    for number in 0..10_000 {
        assert_eq!(text(&files, &format!("/s/{:02}/{number}", number % 100), number), number.to_string());
    }
}

#[test]
fn a_redirect_never_leads_to_another_host() {
    for (uri, location) in [
        (&b"/a"[..], Some("/a/")),
        (b"/a?b=c", Some("/a/?b=c")),
        (b"//evil.example", None),
        (b"/\\evil.example", None),
        (b"/a\r\nX: y", None),
        (b"http://evil.example/a", None),
        (b"", None),
    ] {
        let found = redirect(uri).map(|answer| String::from_utf8_lossy(answer.head()[0]).into_owned());
        let has = found.as_deref().map(|head| head.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap_or_default());
        assert_eq!(has, location, "{}", uri.escape_ascii());
    }
}

#[test]
fn a_file_is_read_aside_and_only_if_it_is_not_cached() {
    let scratch = Scratch::new(&[("files/a.txt", "a")]);
    let files = files(&scratch.settings(&[("/s", "files", MapKind::Replace)]));
    let read_aside = std::cell::Cell::new(0);
    let look = |path: &str, now_ms| {
        let aside = |work: &mut dyn FnMut()| {
            read_aside.set(read_aside.get() + 1);
            work();
        };
        find_aside(&files, path, now_ms, NOW, &aside).is_some()
    };
    assert!(look("/s/a.txt", 0));
    assert_eq!(read_aside.get(), 1);
    assert!(look("/s/a.txt", 1) && look("/s/a.txt", 100_000));
    assert!(!look("/s/none.txt", 2));
    assert_eq!(read_aside.get(), 1, "what is remembered and what is not there need no reading");
}
