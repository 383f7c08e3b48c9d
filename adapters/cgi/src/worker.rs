//! The loop of a worker: it waits for the engine's poll, for the pipes of running programs, for their ends and for time limits.
//! It does not know requests. The only thread of a worker runs it.

use std::io;

use bolide_contract::clock::now_ms;
use bolide_engine::{Assignment, EmbeddedWorker, Turned, Visited};
use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};

use crate::app::CgiLanguage;
use crate::tools;

/// The data of the event of the engine's poll. No run has the number.
const ENGINE_KEY: u64 = u64::MAX;
/// Maximum number of events of one wait.
const EVENTS: usize = 64;
/// How long a worker that exits waits for its last programs, which get SIGKILL before that, in milliseconds.
const MAX_END_MS: u64 = 3000;
/// A wait that is longer than this wakes up in between, in milliseconds.
const MAX_WAIT_MS: u64 = 3_600_000;

/// Serves until the worker has drained.
///
/// # Errors
/// A system call fails.
pub fn serve(language: &'static CgiLanguage, assignment: Assignment) -> io::Result<()> {
    let engine: &'static EmbeddedWorker<CgiLanguage> = Box::leak(Box::new(EmbeddedWorker::new(language, assignment)?));
    language.lock().attach(engine.worker().body_limits);
    tools::set_engine(engine);
    language.lock().poll().add(engine.descriptor(), EpollEvent::new(EpollFlags::EPOLLIN, ENGINE_KEY))?;
    engine.announce();
    let mut turn_ms = Some(0);
    let mut is_asked = true;
    loop {
        if is_asked || turn_ms.is_some_and(|turn_ms| turn_ms <= now_ms()) {
            match engine.turn() {
                Turned::Wait(wait_ms) => {
                    is_asked = false;
                    turn_ms = wait_ms.map(|wait_ms| now_ms() + wait_ms);
                }
                Turned::Again => is_asked = true,
                Turned::Drained => break,
            }
        }
        attend(language, engine);
        // The engine says it once.
        is_asked |= engine.wants_turn();
        let has_more = is_asked || language.lock().has_more();
        let due_ms = language.lock().due_ms().min(turn_ms.unwrap_or(u64::MAX));
        is_asked |= wait(language, if has_more { 0 } else { due_ms.saturating_sub(now_ms()) })?;
    }
    engine.tell_drained();
    engine.heartbeat_of_loop().end();
    end_programs(language)?;
    engine.tell_leaving();
    Ok(())
}

/// Goes on with the runs that have something to do, and starts the programs of waiting requests.
fn attend(language: &CgiLanguage, engine: &EmbeddedWorker<CgiLanguage>) {
    let again = language.lock().take_again();
    for number in again {
        visit(language, engine, number);
    }
    let overdue = language.lock().overdue(now_ms());
    for number in overdue {
        let Some(id) = language.lock().exchange_of(number) else {
            language.lock().pass_time(number, None);
            continue;
        };
        let visited = engine.visit(id, |answer, _| language.lock().pass_time(number, Some(answer)));
        note_visited(language, number, &visited);
    }
    loop {
        let Some((number, id, since_ms)) = language.lock().next_waiting() else { break };
        let visited = engine.visit(id, |answer, stream| match engine.refuse_if_late(since_ms, answer) {
            true => language.lock().drop_waiting(number),
            false => language.lock().go_on(number, answer, stream),
        });
        note_visited(language, number, &visited);
        if !matches!(visited, Visited::Done(())) {
            break;
        }
    }
}

/// Visits the exchange of a run. An exchange that is gone leaves its program.
fn visit(language: &CgiLanguage, engine: &EmbeddedWorker<CgiLanguage>, number: u64) {
    let Some(id) = language.lock().exchange_of(number) else {
        language.lock().go_on_alone(number);
        return;
    };
    let visited = engine.visit(id, |answer, stream| language.lock().go_on(number, answer, stream));
    note_visited(language, number, &visited);
}

fn note_visited<R>(language: &CgiLanguage, number: u64, visited: &Visited<R>) {
    match visited {
        Visited::Done(_) => {}
        Visited::Away => language.lock().put_again(number),
        Visited::Gone => language.lock().leave(number),
    }
}

/// Waits for events, and notes them. True: the engine has some.
fn wait(language: &CgiLanguage, wait_ms: u64) -> io::Result<bool> {
    let mut events = [EpollEvent::empty(); EVENTS];
    let timeout = i32::try_from(wait_ms.min(MAX_WAIT_MS)).unwrap_or(0);
    let mut state = language.lock();
    let count = match state.poll().wait(&mut events, EpollTimeout::try_from(timeout).unwrap_or(EpollTimeout::ZERO)) {
        Ok(count) => count,
        Err(Errno::EINTR) => 0,
        Err(errno) => return Err(errno.into()),
    };
    let mut has_engine = false;
    for event in &events[..count] {
        match event.data() {
            ENGINE_KEY => has_engine = true,
            key => state.note(key, event.events()),
        }
    }
    Ok(has_engine)
}

/// Ends the programs that go on after the last answer.
fn end_programs(language: &CgiLanguage) -> io::Result<()> {
    let until_ms = now_ms() + MAX_END_MS;
    while !language.lock().end_all() && now_ms() < until_ms {
        let overdue = language.lock().overdue(now_ms());
        for number in overdue {
            language.lock().pass_time(number, None);
        }
        let due_ms = language.lock().due_ms().min(until_ms);
        wait(language, due_ms.saturating_sub(now_ms()).max(1))?;
        let again = language.lock().take_again();
        for number in again {
            language.lock().go_on_alone(number);
        }
    }
    Ok(())
}
