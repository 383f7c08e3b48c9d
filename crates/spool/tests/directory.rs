//! A spooler's directory on a real file system: writing, finding, taking and finishing jobs.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use bolide_spool::claiming::{Claim, ClaimedJob, attempts, claim, now_seconds, tidy};
use bolide_spool::directory::{Directory, Place};
use bolide_spool::format::push_variable;
use bolide_spool::inspection::{self, State};
use bolide_spool::names;
use bolide_spool::scan::{MAX_SORTED_NAMES, Scan};
use bolide_spool::watch::Watch;
use bolide_spool::writing::{NewJob, Writer};

/// A directory of the test, removed at its end.
struct Spool {
    directory: Directory,
    writer: Writer,
}

impl Spool {
    fn new() -> Spool {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("bolide-spool-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a directory");
        Spool { directory: Directory::new(path), writer: Writer::new("host") }
    }

    fn write(&self, priority: Option<&str>, at: Option<u64>) -> PathBuf {
        let mut variables = Vec::new();
        push_variable(&mut variables, b"name", b"value").expect("a variable");
        let job = NewJob { variables: &variables, body: b"body", priority: priority.map(str::as_bytes), at };
        self.writer.write(&self.directory, &job).expect("a written job")
    }

    fn places(&self, is_ordered: bool) -> Vec<String> {
        Scan::new(&self.directory, is_ordered).map(|found| found.expect("a place").shown()).collect()
    }

    fn only_place(&self) -> Place {
        let mut found: Vec<Place> = Scan::new(&self.directory, true).map(|found| found.expect("a place")).collect();
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    fn claim(&self, place: &Place) -> Claim {
        claim(&self.directory, place).expect("an outcome")
    }

    fn job(&self, place: &Place) -> ClaimedJob {
        match self.claim(place) {
            Claim::Job(job) => job,
            other => panic!("{other:?}"),
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Place {
        fs::write(self.directory.path().join(name), bytes).expect("a file");
        Place::plain(name)
    }

    fn age(&self, name: &str, seconds: u64) {
        let file = fs::File::options().write(true).open(self.directory.path().join(name)).expect("a file");
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).expect("a time");
    }

    /// How the only job of the list is.
    fn state(&self) -> State {
        let mut listed: Vec<_> = inspection::list(&self.directory).map(|job| job.expect("a job")).collect();
        assert_eq!(listed.len(), 1, "{listed:?}");
        listed.remove(0).state
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.directory.path());
    }
}

#[test]
fn test_a_job_is_written_in_one_piece_under_the_name_that_uwsgi_gives() {
    let spool = Spool::new();
    let path = spool.write(None, None);
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    let parts: Vec<&str> = name.strip_prefix("uwsgi_spoolfile_on_host_").expect("the prefix").split('_').collect();
    assert_eq!(parts.len(), 5, "{name}");
    assert!(parts.iter().all(|part| part.parse::<u64>().is_ok()), "{name}");
    assert_eq!(parts[0], std::process::id().to_string());
    assert!(names::written_at(&name).expect("a time").abs_diff(now_seconds()) < 60);
    assert_eq!(fs::read(&path).expect("the job"), b"\x11\x0d\x00\x00\x04\x00name\x05\x00valuebody");
    assert_eq!(fs::metadata(&path).expect("the job").permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(spool.directory.path().join(".new")).expect("a directory").count(), 0);
    assert_ne!(spool.write(None, None), path);
}

#[test]
fn test_a_taken_job_has_its_variables_and_is_gone_when_it_is_done() {
    let spool = Spool::new();
    spool.write(None, None);
    let place = spool.only_place();
    let job = spool.job(&place);
    assert_eq!(job.variables().collect::<Vec<_>>(), [(&b"name"[..], &b"value"[..])]);
    assert_eq!(job.body(), b"body");
    job.begin().expect("a note");
    assert_eq!(attempts(&spool.directory, &place).len(), 1);
    job.done().expect("an end");
    assert!(matches!(spool.claim(&place), Claim::Gone));
    assert!(attempts(&spool.directory, &place).is_empty());
    assert!(spool.places(false).is_empty());
}

#[test]
fn test_a_job_that_stays_has_no_attempt_against_it() {
    let spool = Spool::new();
    spool.write(None, None);
    let place = spool.only_place();
    for _ in 0..5 {
        let job = spool.job(&place);
        job.begin().expect("a note");
        job.again().expect("an end");
    }
    assert_eq!(spool.state(), State::Waits);
}

#[test]
fn test_a_job_that_has_ended_its_spooler_three_times_is_given_up_with_the_reason() {
    let spool = Spool::new();
    for priority in [None, Some("5")] {
        spool.write(priority, None);
        let place = spool.only_place();
        for count in 1..=3 {
            // A killed process ends its attempt without a result.
            let job = spool.job(&place);
            job.begin().expect("a note");
            drop(job);
            assert_eq!(attempts(&spool.directory, &place).len(), count);
        }
        let Claim::GivenUp(reason) = spool.claim(&place) else { panic!("it is not given up") };
        assert!(reason.contains("it has ended its spooler 3 times (pid "), "{reason}");
        assert_eq!(spool.state(), State::Failed(reason));
        assert!(matches!(spool.claim(&place), Claim::Gone));
        inspection::retry(&spool.directory, &place).expect("a retry");
        assert_eq!(spool.state(), State::Waits);
        spool.job(&place).done().expect("an end");
    }
}

#[test]
fn test_the_time_of_a_job_is_the_time_of_its_file() {
    let spool = Spool::new();
    let at = now_seconds() + 3600;
    let path = spool.write(None, Some(at));
    assert_eq!(fs::metadata(&path).expect("the job").mtime(), at as i64);
    let place = spool.only_place();
    assert!(matches!(spool.claim(&place), Claim::Later(time) if time == at));
    assert_eq!(spool.state(), State::WaitsUntil(at));
    spool.age(&place.shown(), 1);
    spool.job(&place).done().expect("an end");
}

#[test]
fn test_an_ordered_scan_follows_numbers_and_goes_into_priorities() {
    let spool = Spool::new();
    for name in ["uwsgi_spoolfile_on_h_10", "uwsgi_spoolfile_on_h_9", "7", "note", "failed_1"] {
        spool.put(name, b"");
    }
    for priority in ["100", "20", "high", ".new"] {
        fs::create_dir_all(spool.directory.path().join(priority).join("3")).expect("a directory");
        spool.put(&format!("{priority}/uwsgi_spoolfile_on_h_1"), b"");
        spool.put(&format!("{priority}/3/uwsgi_spoolfile_on_h_2"), b"");
    }
    let (low, high) = ("20/uwsgi_spoolfile_on_h_1", "100/uwsgi_spoolfile_on_h_1");
    let (nine, ten) = ("uwsgi_spoolfile_on_h_9", "uwsgi_spoolfile_on_h_10");
    assert_eq!(spool.places(true), ["7", low, high, nine, ten]);
    let mut unordered = spool.places(false);
    unordered.sort();
    assert_eq!(unordered, [high, low, ten, nine]);
}

#[test]
fn test_an_ordered_scan_of_a_large_directory_is_whole_and_in_order() {
    let spool = Spool::new();
    let count = MAX_SORTED_NAMES + 100;
    for number in 0..count {
        spool.put(&number.to_string(), b"");
    }
    let expected: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    assert_eq!(spool.places(true), expected);
}

#[test]
fn test_names_are_in_the_order_of_their_numbers() {
    let sorted = ["", "1", "2", "10", "a", "a1", "a1b2", "a1b10", "a02", "a10", "b"];
    for (place, left) in sorted.iter().enumerate() {
        for (other, right) in sorted.iter().enumerate() {
            assert_eq!(names::order(left.as_bytes(), right.as_bytes()), place.cmp(&other), "{left} and {right}");
        }
    }
}

#[test]
fn test_a_file_that_is_no_job_is_set_aside_and_nothing_is_lost() {
    let spool = Spool::new();
    let place = spool.put("uwsgi_spoolfile_on_junk", b"hello");
    let Claim::GivenUp(reason) = spool.claim(&place) else { panic!("it is taken") };
    assert!(reason.starts_with("it is not a job: its first byte is not 17"), "{reason}");
    assert_eq!(fs::read(spool.directory.path().join("failed/uwsgi_spoolfile_on_junk")).expect("the file"), b"hello");
    // A second file of the same name replaces nothing.
    spool.put("uwsgi_spoolfile_on_junk", b"other");
    let Claim::Refused(reason) = spool.claim(&place) else { panic!("it is taken") };
    assert!(reason.contains("there is") && reason.contains("already"), "{reason}");
}

#[test]
fn test_the_beginning_of_a_job_has_time_to_become_one() {
    let spool = Spool::new();
    let whole = b"\x11\x05\x00\x00\x01\x00a\x00\x00";
    let place = spool.put("uwsgi_spoolfile_on_slow", &whole[..6]);
    assert!(matches!(spool.claim(&place), Claim::Busy));
    spool.put("uwsgi_spoolfile_on_slow", whole);
    drop(spool.job(&place));
    spool.put("uwsgi_spoolfile_on_slow", b"");
    spool.age("uwsgi_spoolfile_on_slow", 100);
    assert!(matches!(spool.claim(&place), Claim::GivenUp(reason) if reason.contains("only the beginning")));
}

#[test]
fn test_links_directories_and_pipes_are_refused_and_stay() {
    let spool = Spool::new();
    spool.put("target", b"\x11\x00\x00\x00");
    let path = |name: &str| spool.directory.path().join(name);
    symlink(path("target"), path("uwsgi_spoolfile_on_link")).expect("a link");
    fs::create_dir(path("uwsgi_spoolfile_on_directory")).expect("a directory");
    let made = Command::new("mkfifo").arg(path("uwsgi_spoolfile_on_pipe")).status().expect("mkfifo");
    assert!(made.success());
    for (name, what) in [("link", "a link"), ("directory", "a directory"), ("pipe", "a FIFO")] {
        let place = Place::plain(format!("uwsgi_spoolfile_on_{name}"));
        assert!(matches!(spool.claim(&place), Claim::Refused(reason) if reason.contains(what)), "{name}");
        assert!(path(&place.shown()).symlink_metadata().is_ok());
    }
}

#[test]
fn test_remains_of_killed_processes_are_removed_in_time() {
    let spool = Spool::new();
    spool.write(None, None);
    let place = spool.only_place();
    spool.job(&place).begin().expect("a note");
    spool.put(".new/uwsgi_spoolfile_on_half", b"\x11");
    fs::write(spool.directory.path().join(".attempts/uwsgi_spoolfile_on_done"), b"1 1\n").expect("a note");
    fs::write(spool.directory.path().join(".attempts/5_uwsgi_spoolfile_on_done"), b"1 1\n").expect("a note");
    assert_eq!(tidy(&spool.directory).expect("tidied").abandoned, 0);
    assert_eq!(attempts(&spool.directory, &place).len(), 1);
    assert_eq!(fs::read_dir(spool.directory.path().join(".attempts")).expect("a directory").count(), 1);
    // It is too young to be abandoned.
    assert!(spool.directory.path().join(".new/uwsgi_spoolfile_on_half").exists());
}

#[test]
fn test_jobs_are_noticed_when_they_arrive_and_what_a_spooler_does_is_not() {
    let spool = Spool::new();
    let mut watch = Watch::new(&spool.directory).expect("a watch");
    assert_eq!(watch.arrivals().expect("arrivals"), Default::default());
    spool.write(None, None);
    assert!(watch.arrivals().expect("arrivals").has_job);
    let place = spool.only_place();
    let job = spool.job(&place);
    job.begin().expect("a note");
    job.again().expect("an end");
    spool.job(&place).done().expect("an end");
    assert_eq!(watch.arrivals().expect("arrivals"), Default::default());
    for _ in 0..2 {
        spool.write(Some("3"), None);
        assert!(watch.arrivals().expect("arrivals").has_job);
    }
    spool.put("uwsgi_spoolfile_on_other", b"");
    let arrivals = watch.arrivals().expect("arrivals");
    assert!(arrivals.has_beginning && !arrivals.has_job && !arrivals.is_lost);
    fs::remove_dir_all(spool.directory.path()).expect("removed");
    assert!(watch.arrivals().expect("arrivals").is_lost);
}

#[test]
fn test_a_job_that_another_process_has_locked_is_busy() {
    let spool = Spool::new();
    spool.write(None, None);
    let place = spool.only_place();
    let path = spool.directory.path_of(&place);
    let script = "import fcntl,sys; file = open(sys.argv[1], 'r+b'); fcntl.lockf(file, fcntl.LOCK_EX); print('locked', \
        flush=True); sys.stdin.read()";
    let mut other = Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python3");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(other.stdout.take().expect("a pipe")), &mut line).expect("a line");
    assert!(matches!(spool.claim(&place), Claim::Busy));
    assert_eq!(spool.state(), State::WorkedOn(other.id()));
    assert!(inspection::content(&path).expect("an outcome").is_none());
    assert!(inspection::drop(&spool.directory, &place).is_err());
    other.kill().expect("killed");
    other.wait().expect("an end");
    spool.job(&place).done().expect("an end");
}
