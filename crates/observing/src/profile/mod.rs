//! `bolide profile`: what all workers of an instance do for some seconds, as a flame graph and as a file for speedscope, with the
//! share of each route. The workers are read as by `bolide trace`: they are not stopped, and if this command is killed, nothing
//! is left behind. The command-line process runs it.

mod flame_graph;
mod samples;
mod sampling;
mod source;
mod speedscope;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use bolide_command_line::ObservingRequest;
use bolide_configuration::instance_commands::EXIT_REFUSED;
use bolide_supervision::text::counted;

use crate::instances::Refusal;
use crate::output::{Ending, say};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use samples::Samples;
use sampling::{Choice, Sampling};
use source::Sources;

/// Samples a second, without `--rate` and at most.
const RATE: u32 = 100;
const MAX_RATE: u32 = 1_000;
/// Duration of a profile, in seconds.
const MAX_SECONDS: u32 = 3_600;
/// Interval at which new processes are looked for.
const REFRESH: Duration = Duration::from_secs(1);
/// Routes that are listed.
const MAX_ROUTES: usize = 20;
/// The name of the files without `--output`.
const OUTPUT: &str = "bolide-profile";

/// Samples an instance and writes the files.
pub fn run(request: &ObservingRequest, output: &mut impl Write) -> Result<(), Ending> {
    let wrong = |why: String| -> Refusal { (EXIT_REFUSED, why) };
    let (seconds, instance) = arguments(&request.arguments).map_err(wrong)?;
    let rate = request.number("--rate", MAX_RATE).map_err(wrong)?.unwrap_or(RATE);
    let choice = Choice { gil: request.has("--gil"), idle: request.has("--idle") };
    let name = request.value("--output").unwrap_or(OUTPUT);
    let (master, mut sampling) = Sampling::of(instance)?;
    if let Some(why) = sampling.trouble().filter(|_| sampling.processes() == 0) {
        return Err(wrong(format!("master {master}: {why}")).into());
    }
    // Before the samples: a profile that can't be written is not worth its time.
    let paths = [format!("{name}.svg"), format!("{name}.speedscope.json")];
    let mut files = Vec::new();
    for path in &paths {
        files.push(create(path).map_err(|error| wrong(format!("{path}: {error}")))?);
    }
    let missed = sample(&mut sampling, seconds, rate, choice);
    if !request.has("--server") {
        sampling.samples.cut_server();
    }
    let (samples, sources) = (&sampling.samples, Sources::default());
    let title = format!("bolide profile: master {master}, {seconds} s, {rate} samples a second");
    let speedscope = speedscope::file(samples, 1.0 / f64::from(rate), &title);
    let contents = [flame_graph::svg(samples, &title, &|file, line| sources.line(file, line)), speedscope.to_string()];
    for ((file, text), path) in files.iter_mut().zip(&contents).zip(&paths) {
        file.write_all(text.as_bytes()).map_err(|error| wrong(format!("{path}: {error}")))?;
    }
    let processes = counted(sampling.processes() as u64, "worker").replace("workers", "processes").replace("worker", "process");
    say(output, &format!("{title}, {processes}\n{}wrote {} and {}\n", report(&sampling, missed), paths[0], paths[1]))?;
    match sampling.trouble() {
        None => Ok(()),
        Some(why) => Err(wrong(format!("some processes are missing: {why}")).into()),
    }
}

/// `SECONDS [INSTANCE]`
fn arguments(arguments: &[String]) -> Result<(u32, Option<&str>), String> {
    let Some(seconds) = arguments.first() else { return Err("specify the number of seconds: `bolide profile 10`".to_owned()) };
    let number = seconds.parse().ok().filter(|number| (1..=MAX_SECONDS).contains(number));
    let number = number.ok_or_else(|| format!("`{seconds}`: write a number of seconds from 1 to {MAX_SECONDS}"))?;
    Ok((number, arguments.get(1).map(String::as_str)))
}

/// The user who types the command owns the file. A link that another user may have put there is not followed.
fn create(path: &str) -> std::io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).custom_flags(nix::libc::O_NOFOLLOW).open(path)
}

/// Takes samples at a steady rate, until the time is over or Ctrl-C ends it. Returns how many were missed because the ones before
/// took too long.
fn sample(sampling: &mut Sampling, seconds: u32, rate: u32, choice: Choice) -> u32 {
    let mut interrupts = SigSet::empty();
    interrupts.add(Signal::SIGINT);
    let interrupted = interrupts.thread_block().and_then(|()| SignalFd::with_flags(&interrupts, SfdFlags::SFD_NONBLOCK)).ok();
    let (start, interval) = (Instant::now(), Duration::from_secs(1) / rate);
    let mut refreshed = start;
    let mut missed = 0;
    for number in 0..seconds.saturating_mul(rate) {
        let due = start + interval * number;
        let now = Instant::now();
        if now > due + interval {
            missed += 1;
            continue;
        }
        std::thread::sleep(due.saturating_duration_since(now));
        if interrupted.as_ref().is_some_and(|signals| matches!(signals.read_signal(), Ok(Some(_)))) {
            break;
        }
        sampling.take(choice);
        if refreshed.elapsed() >= REFRESH {
            refreshed = Instant::now();
            sampling.refresh();
        }
    }
    missed
}

/// The routes with their shares.
fn report(sampling: &Sampling, missed: u32) -> String {
    let samples: &Samples = &sampling.samples;
    let total = samples.taken.len().max(1) as f64;
    let percent = |count: u64| 100.0 * count as f64 / total;
    let mut text = String::new();
    let shares = samples.shares();
    for (route, all, running) in shares.iter().take(MAX_ROUTES) {
        let waiting = percent(all - running);
        text += &format!("  {:5.1} %  {route} (runs {:.1} %, waits {waiting:.1} %)\n", percent(*all), percent(*running));
    }
    if shares.len() > MAX_ROUTES {
        text += &format!("  and {}\n", counted((shares.len() - MAX_ROUTES) as u64, "other route"));
    }
    if samples.taken.is_empty() {
        text += "  no thread was busy; `--idle` shows those that wait for requests, too\n";
    }
    if !sampling.knows_requests() {
        text += "  the requests could not be read: the running master is of another version, or of another user\n";
    }
    for (count, what) in [
        (u64::from(missed), "samples were missed because the machine was busy: use a lower `--rate`"),
        (samples.left_out, "samples were left out: they changed while they were read, or there was no room for more"),
        (samples.partial, "stacks are incomplete, because they changed while they were read"),
    ] {
        if count > 0 {
            text += &format!("  {count} {what}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_duration_comes_first_and_is_bounded() {
        let read =
            |text: &str| arguments(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).map(|(seconds, _)| seconds);
        assert_eq!(read("10 shop.ini"), Ok(10));
        for text in ["", "0", "3601", "shop.ini", "-1", "1.5"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
