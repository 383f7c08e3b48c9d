//! The threads of a worker: each one leads, follows, or is busy in the application after another thread took the lead. With one
//! thread this is a call of [`Shared::lead`] and nothing more. It does not know about connections or protocols. Workers run it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bolide_contract::settings::Threads;

use crate::app::Language;
use crate::app_thread::AppThread;
use crate::event_loop::standby::wait_for_need;
use crate::event_loop::worker_state::{LeadEnd, Shared};
use crate::exchange::context::ThreadContext;
use crate::logging::access_log::complain;
use crate::scheduling::leadership::Turn;

/// Time that the first thread waits for the others at the end before it logs that.
const LOG_AFTER: Duration = Duration::from_secs(1);

/// Runs the worker on the calling thread, and on as many more as the settings say.
pub fn run<L: Language>(shared: &Arc<Shared<L>>) -> io::Result<()> {
    let app = shared.language.enter(0).map_err(io::Error::other)?;
    let mut thread = thread(shared, 0)?;
    let mut app = AppThread::new(app, shared.leftovers.clone(), shared.worker.language_waits(thread.meters));
    let threads = shared.worker.settings.workers.threads;
    shared.leadership.join();
    shared.leadership.take_over();
    if threads == Threads::Fixed(1) {
        shared.announce();
        shared.lead(&mut thread, &mut app, true);
        return Ok(());
    }
    crate::allocator::share_arenas();
    for core in 1..first_threads(threads) {
        spawn(shared, core)?;
    }
    shared.announce();
    work(shared, &mut thread, &mut app, true);
    wait_for_others(shared, &mut app);
    Ok(())
}

/// The interpreter must not end while threads wait for it: CPython before 3.14 would end them inside our frames, which aborts the
/// process. They wait for nothing else, and this thread has released the interpreter; application code that keeps it from them
/// forever keeps it from this thread too. So the bound is the master's: `reload-mercy`.
fn wait_for_others<L: Language>(shared: &Shared<L>, app: &mut AppThread<L::App>) {
    let mut was_logged = false;
    loop {
        app.let_go();
        let are_back = shared.leadership.wait_for_others(1, LOG_AFTER);
        app.enter();
        // Check once more with the interpreter held: threads that come back now are gone before it ends.
        if are_back || shared.leadership.wait_for_others(1, Duration::ZERO) {
            return;
        }
        if !was_logged {
            complain(shared.worker.number, "drained, but its threads wait for the interpreter, which the application holds");
            was_logged = true;
        }
    }
}

/// The life of a thread in a worker with several. It holds the language at its end as at its beginning.
fn work<L: Language>(shared: &Arc<Shared<L>>, thread: &mut ThreadContext, app: &mut AppThread<L::App>, leads: bool) {
    take_turns(shared, thread, app, leads);
    app.enter();
}

/// Lead, lose the lead, follow, lead again.
fn take_turns<L: Language>(shared: &Arc<Shared<L>>, thread: &mut ThreadContext, app: &mut AppThread<L::App>, mut leads: bool) {
    let threads = shared.worker.settings.workers.threads;
    let is_first = thread.core == 0;
    while !shared.leadership.is_stopping() {
        if leads {
            shared.leadership.take_over();
            if threads == Threads::Auto && shared.leadership.is_alone() {
                let shared = shared.clone();
                app.when_held(Box::new(move || grow(&shared)));
            }
            thread.clock.tick();
            let end = shared.lead(thread, app, false);
            app.forget_deferred();
            match end {
                LeadEnd::Drained => shared.leadership.stop(),
                LeadEnd::Lost => leads = is_leader_blocked(shared, app) && shared.leadership.seize(),
            }
            continue;
        }
        app.let_go();
        let turn = shared.leadership.follow(threads == Threads::Auto && !is_first, &mut |inside| wait_for_need(shared, inside));
        app.come_back();
        match turn {
            Turn::Lead => leads = true,
            Turn::End if is_first && !shared.leadership.is_stopping() => {}
            Turn::End => return,
        }
    }
}

/// Whether the current leader is blocked too if it is inside a call: this thread holds the language, and the leader is in the
/// application or waits for the language. If threads take the language late, a leader inside a call may instead be sending a
/// file.
fn is_leader_blocked<L: Language>(shared: &Shared<L>, app: &mut AppThread<L::App>) -> bool {
    app.drop_leftovers();
    let leader = shared.leadership.leader();
    let is_in_application = || {
        let of_leader = shared.worker.slots.iter().find(|slot| slot.thread.load(Relaxed) == leader);
        of_leader.is_some_and(|slot| slot.began_ms.load(Relaxed) != 0)
    };
    app.is_held() && (!app.is_late() || is_in_application())
}

fn first_threads(threads: Threads) -> u32 {
    match threads {
        Threads::Fixed(count) => count,
        // One that runs, and the standby that watches it.
        Threads::Auto => 2,
    }
}

/// With `threads = auto`, starts another thread if no follower is left that could take over from the leader. The leader calls it
/// with the language held, as creating a thread for the language requires. If it takes the language late, another thread may have
/// been started in the meantime.
fn grow<L: Language>(shared: &Arc<Shared<L>>) {
    if !shared.leadership.is_alone() {
        return;
    }
    let free = (1u32..).zip(shared.worker.slots.iter().skip(1)).find(|(_, slot)| slot.thread.load(Relaxed) == 0);
    if let Some((core, _)) = free
        && let Err(error) = spawn(shared, core)
    {
        complain(shared.worker.number, &format!("can't start another thread: {error}"));
    }
}

fn spawn<L: Language>(shared: &Arc<Shared<L>>, core: u32) -> io::Result<()> {
    /// Marks a slot as taken until its thread has stored its own id there.
    const TAKEN: u32 = u32::MAX;
    let slot = shared.worker.slots.get(core as usize).ok_or_else(|| io::Error::other("the scoreboard has no slot for it"))?;
    slot.thread.store(TAKEN, Relaxed);
    shared.leadership.join();
    let body = {
        let shared = shared.clone();
        Box::new(move || {
            match shared.language.enter(core) {
                Ok(app) => match thread(&shared, core) {
                    Ok(mut thread) => {
                        let waits = shared.worker.language_waits(thread.meters);
                        let mut app = AppThread::new(app, shared.leftovers.clone(), waits);
                        work(&shared, &mut thread, &mut app, false);
                    }
                    Err(error) => complain(shared.worker.number, &format!("a thread can't start: {error}")),
                },
                Err(error) => complain(shared.worker.number, &format!("a thread can't run the application: {error}")),
            }
            slot.thread.store(0, Relaxed);
            shared.leadership.part();
        })
    };
    shared.language.spawn(format!("bolide worker {} thread {core}", shared.worker.number), body).map_err(|error| {
        slot.thread.store(0, Relaxed);
        shared.leadership.part();
        io::Error::other(error)
    })
}

fn thread<L: Language>(shared: &Shared<L>, core: u32) -> io::Result<ThreadContext> {
    Ok(ThreadContext::new(&shared.worker, core, shared.places(core)?))
}
