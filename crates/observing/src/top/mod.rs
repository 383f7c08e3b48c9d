//! `bolide top`: the workers of a running instance and their requests, or the vassals of an emperor, live. The master answers one
//! question a second at most, and the command measures the processes itself. Without a terminal it prints lines. The command-line
//! process runs it.

mod court;
mod model;
mod numbers;
mod orders;
mod plain;
mod rows;
mod sample;
mod stack;
mod tables;
mod terminal;
mod threads;
mod trees;
mod vassals;
mod view;

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use bolide_command_line::ObservingRequest;
use bolide_configuration::instance_commands::EXIT_REFUSED;
use serde_json::json;

use crate::instances::{Refusal, ask_about};
use crate::output::{Ending, say};
use crate::trace;
use crate::usage::Usages;

use court::Court;
use model::{Action, Key, Model};
use sample::{Looks, Sample};
use terminal::{Screen, ScreenEvent};

/// The most seconds between two looks.
const MAX_EVERY_S: u32 = 3600;

/// The maximum delay before the second look at an emperor, because the first one does not have rates.
const MAX_FIRST: Duration = Duration::from_secs(1);

/// What is watched, and what was seen of it.
#[derive(Debug)]
enum Watched {
    Instance(Box<Instance>),
    Emperor(Court),
}

#[derive(Debug, Default)]
struct Instance {
    named: Option<String>,
    /// The one that was found, for the first look. Later ones find it again, because another master may have taken over.
    found: Option<i32>,
    usages: Usages,
    looks: Looks,
}

/// How a screen is left.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    /// By its key: the screen before returns.
    Back,
    /// The command exits.
    Ended,
}

/// Watches an instance until a key, a signal, or the end of the instance or of the output's reader.
pub fn run(request: &ObservingRequest, output: &mut impl Write) -> Result<(), Ending> {
    let every_s = request.number("--every", MAX_EVERY_S).map_err(|why| (EXIT_REFUSED, why))?.unwrap_or(1);
    let every = Duration::from_secs(every_s.into());
    // An instance that is not there is told before the terminal changes.
    let mut watched = Watched::find(request.arguments.first().cloned())?;
    let first = watched.look(&BTreeSet::new())?;
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if is_terminal && !request.has("--once") {
        let mut model = if matches!(watched, Watched::Emperor(_)) { Model::of_emperor() } else { Model::default() };
        model.take(first.unwrap_or_default());
        return watch(&mut Screen::open()?, &mut watched, model, every).map(drop);
    }
    loop {
        std::thread::sleep(every);
        if let Some(sample) = watched.look(&BTreeSet::new())? {
            say(output, &if sample.is_of_emperor { vassals::lines(&sample) } else { plain::lines(&sample) })?;
            if request.has("--once") {
                return Ok(());
            }
            say(output, "\n")?;
        }
    }
}

impl Watched {
    /// Asks what it is.
    fn find(named: Option<String>) -> Result<Watched, Refusal> {
        let (pid, identity) = ask_about(named.as_deref(), &json!({"ask": "identity"}))?;
        Ok(match identity["emperor"] == true {
            true => Watched::Emperor(Court::new(named, pid)),
            false => Watched::instance(named, Some(pid)),
        })
    }

    fn instance(named: Option<String>, found: Option<i32>) -> Watched {
        Watched::Instance(Box::new(Instance { named, found, ..Instance::default() }))
    }

    /// Asks and measures. `unfolded` are the processes whose threads are wanted. `None`: nothing is new since the last look.
    fn look(&mut self, unfolded: &BTreeSet<i64>) -> Result<Option<Sample>, Refusal> {
        match self {
            Watched::Instance(instance) => instance.look(unfolded),
            Watched::Emperor(court) => court.look().map(Some),
        }
    }
}

impl Instance {
    fn look(&mut self, unfolded: &BTreeSet<i64>) -> Result<Option<Sample>, Refusal> {
        let found = self.found.take().map(|pid| pid.to_string());
        let (_, mut answer) = ask_about(found.as_deref().or(self.named.as_deref()), &json!({"ask": "top"}))?;
        if self.looks.has_seen(&answer) {
            return Ok(None);
        }
        self.usages.add_to(&mut answer);
        Ok(Some(self.looks.sample(&answer, unfolded)))
    }
}

fn watch(screen: &mut Screen, watched: &mut Watched, mut model: Model, every: Duration) -> Result<Left, Ending> {
    let mut next = Instant::now() + if model.sample().is_of_emperor { every.min(MAX_FIRST) } else { every };
    loop {
        screen.draw(|frame| view::draw(frame, &model))?;
        let left = next.saturating_duration_since(Instant::now());
        match screen.wait(left.as_millis() as u64 + 1)? {
            ScreenEvent::End | ScreenEvent::Key(Key::Interrupt) => return Ok(Left::Ended),
            ScreenEvent::Key(key) => match (model.press(key), &*watched) {
                (Action::Quit, _) => return Ok(Left::Back),
                (Action::Look, _) => next = Instant::now(),
                (Action::ReadStack(pid), Watched::Instance(instance)) => {
                    model.show_text(stack_of(instance.named.as_deref(), pid));
                }
                (Action::Open(pid), _) => match open_vassal(screen, pid, every)? {
                    Ok(Left::Back) => {}
                    Ok(Left::Ended) => return Ok(Left::Ended),
                    Err((_, why)) => model.show_text(why),
                },
                (Action::Nothing | Action::ReadStack(_), _) => {}
            },
            ScreenEvent::Redraw => screen.begin_again()?,
            ScreenEvent::Nothing => {}
        }
        if Instant::now() >= next {
            next = Instant::now() + every;
            match watched.look(model.unfolded()) {
                Ok(Some(sample)) => model.take(sample),
                Ok(None) => {}
                // It may be restarted: the screen stays, and shows that.
                Err((_, why)) => model.take_trouble(why),
            }
        }
    }
}

/// Watches a vassal until its screen is left. The inner error says why it can't be watched.
fn open_vassal(screen: &mut Screen, pid: i64, every: Duration) -> Result<Result<Left, Refusal>, Ending> {
    let mut watched = Watched::instance(Some(pid.to_string()), None);
    let first = match watched.look(&BTreeSet::new()) {
        Ok(first) => first.unwrap_or_default(),
        Err(refusal) => return Ok(Err(refusal)),
    };
    let mut model = Model::opened();
    model.take(first);
    watch(screen, &mut watched, model, every).map(Ok)
}

fn stack_of(instance: Option<&str>, pid: i64) -> String {
    let here = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    stack::shortened(&trace::of_process(instance, pid), &here.to_string_lossy())
}
