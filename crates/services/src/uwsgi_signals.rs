//! The targets of uWSGI's signals, as applications write them, and the times of timers. Pure functions of their arguments.

use bolide_contract::attendant::Schedule;
use bolide_contract::uwsgi_signals::Pool;

/// The processes that handle a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The first of these that is free.
    Any(Pool),
    /// Each worker.
    Workers,
    /// Each worker that is not paused.
    ActiveWorkers,
    /// The worker of this number.
    Worker(u32),
    /// Each mule.
    Mules,
    /// The mule of this number.
    Mule(u32),
    /// No process: uWSGI accepts the word and does nothing.
    None,
}

/// What an instance has, of the processes that a target can name.
#[derive(Debug, Clone, Default)]
pub struct Members {
    pub workers: u32,
    pub mules: u32,
    /// The names of the farms, in the order of their numbers.
    pub farms: Vec<String>,
    pub spoolers: u32,
}

/// Returns the target that an application has written.
///
/// # Errors
/// There is no such target: why, as a part of a sentence.
pub fn target_of(text: &str, members: &Members) -> Result<Target, String> {
    let within = |number: u32, most: u32, noun: &str| match number {
        number if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("there are {most} {noun}")),
    };
    match text {
        "" | "worker" | "worker0" => Ok(Target::Any(Pool::Workers)),
        "workers" => Ok(Target::Workers),
        "active-workers" => Ok(Target::ActiveWorkers),
        "subscribed" => Ok(Target::None),
        "spooler" => within(1, members.spoolers, "spoolers").map(|_| Target::Any(Pool::Spoolers)),
        "mules" => within(1, members.mules, "mules").map(|_| Target::Mules),
        "mule" | "mule0" => within(1, members.mules, "mules").map(|_| Target::Any(Pool::Mules)),
        _ => {
            if let Some(name) = text.strip_prefix("farm_") {
                let place = members.farms.iter().position(|farm| farm == name);
                let number = place.and_then(|place| u32::try_from(place + 1).ok());
                return number.map(|number| Target::Any(Pool::Farm(number))).ok_or_else(|| format!("there is no farm `{name}`"));
            }
            let farms = u32::try_from(members.farms.len()).unwrap_or(u32::MAX);
            let numbered = |prefix: &str| text.strip_prefix(prefix).and_then(|number| number.parse::<u32>().ok());
            if let Some(number) = numbered("worker") {
                return within(number, members.workers, "workers").map(Target::Worker);
            }
            if let Some(number) = numbered("mule") {
                return within(number, members.mules, "mules").map(Target::Mule);
            }
            if let Some(number) = numbered("farm") {
                return within(number, farms, "farms").map(|number| Target::Any(Pool::Farm(number)));
            }
            Err("it is not a target".to_owned())
        }
    }
}

/// When a timer is due next, in milliseconds, after it was due at `due_ms` and has fired at `now_ms`. `keeps_time`: it stays in
/// its rhythm, and leaves out the times that have passed; otherwise it counts from now.
pub fn next_ms(due_ms: u64, every_ms: u64, keeps_time: bool, now_ms: u64) -> u64 {
    let every_ms = every_ms.max(1);
    if !keeps_time {
        return now_ms.saturating_add(every_ms);
    }
    let missed = now_ms.saturating_sub(due_ms) / every_ms;
    due_ms.saturating_add(every_ms.saturating_mul(missed + 1))
}

/// The five numbers of a schedule, as `cron` takes them.
pub fn schedule_in_words(schedule: Schedule) -> String {
    let Schedule { minute, hour, day, month, weekday } = schedule;
    format!("{minute} {hour} {day} {month} {weekday}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_what_uwsgi_takes_it_for_and_none_that_the_instance_has_not() {
        let members = Members { workers: 2, mules: 3, farms: vec!["paint".to_owned(), "post".to_owned()], spoolers: 1 };
        for (text, target) in [
            ("", Target::Any(Pool::Workers)),
            ("worker", Target::Any(Pool::Workers)),
            ("worker0", Target::Any(Pool::Workers)),
            ("worker2", Target::Worker(2)),
            ("workers", Target::Workers),
            ("active-workers", Target::ActiveWorkers),
            ("spooler", Target::Any(Pool::Spoolers)),
            ("mule", Target::Any(Pool::Mules)),
            ("mule0", Target::Any(Pool::Mules)),
            ("mule3", Target::Mule(3)),
            ("mules", Target::Mules),
            ("farm_post", Target::Any(Pool::Farm(2))),
            ("farm1", Target::Any(Pool::Farm(1))),
            ("subscribed", Target::None),
        ] {
            assert_eq!(target_of(text, &members), Ok(target), "{text}");
        }
        for text in ["worker3", "workerx", "mule4", "farm0", "farm3", "farm_none", "nobody", "worker-1"] {
            assert!(target_of(text, &members).is_err(), "{text}");
        }
        for text in ["mule", "mules", "spooler", "worker1"] {
            assert!(target_of(text, &Members::default()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_timer_keeps_its_rhythm_and_leaves_out_what_has_passed() {
        assert_eq!(next_ms(1000, 500, true, 1000), 1500);
        assert_eq!(next_ms(1000, 500, true, 1499), 1500);
        assert_eq!(next_ms(1000, 500, true, 1500), 2000);
        assert_eq!(next_ms(1000, 500, true, 9_999), 10_000);
        assert_eq!(next_ms(1000, 500, false, 1499), 1999);
        assert_eq!(next_ms(u64::MAX, 500, true, 0), u64::MAX);
    }
}
