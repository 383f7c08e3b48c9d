//! `uwsgi.queue_push` and the related functions, on the queue that all processes of the instance share. They exist where the
//! configuration has a `queue`.

use std::time::SystemTime;

use bolide_memory::queue::{Items, Queue};

use crate::services::arguments::{CallArguments, Error, Made, ToPython, TrueOrNone, functions, raise, without_interpreter};
use crate::services::attachment::attached;

functions! { FUNCTIONS:
    queue_push(1..=1) |arguments: CallArguments<'_>| push(&arguments);
    queue_set(2..=2) |arguments: CallArguments<'_>| set(&arguments);
    queue_pull(0..=1) |_: CallArguments<'_>| with_items(|items| items.pull());
    queue_pop(0..=1) |_: CallArguments<'_>| with_items(|items| items.pop());
    queue_get(1..=1) |arguments: CallArguments<'_>| get(&arguments);
    queue_last(0..=1) |arguments: CallArguments<'_>| last(&arguments);
    queue_slot(0..=1) |_: CallArguments<'_>| the_queue().map(|queue| queue.push_position());
    queue_pull_slot(0..=1) |_: CallArguments<'_>| the_queue().map(|queue| queue.pull_position());
}

fn the_queue() -> Option<&'static Queue<'static>> {
    match attached().and_then(|attached| attached.queue.as_ref()) {
        Some(queue) => Some(queue),
        None => raise(Error::Runtime, "there is no queue: the configuration has no `queue`"),
    }
}

/// Acts on the items while the lock is held. The act touches no Python object.
fn with_items<R>(act: impl FnOnce(Items<'_>) -> R) -> Option<R> {
    let queue = the_queue()?;
    let done = match queue.lock().try_lock() {
        Ok(Some(guard)) => Ok(act(queue.items(&guard))),
        Ok(None) => without_interpreter(|| queue.lock().lock().map(|guard| act(queue.items(&guard)))),
        Err(error) => Err(error),
    };
    match done {
        Ok(done) => Some(done),
        Err(error) => raise(Error::Os, &format!("the queue can't be locked: {error}")),
    }
}

fn push(arguments: &CallArguments<'_>) -> Option<TrueOrNone> {
    let item = arguments.bytes(0)?;
    with_items(|items| items.push(item.as_slice(), now_s())).map(TrueOrNone)
}

fn set(arguments: &CallArguments<'_>) -> Option<TrueOrNone> {
    let (slot, item) = (arguments.long(0)?, arguments.bytes(1)?);
    let Ok(slot) = u64::try_from(slot) else { return Some(TrueOrNone(false)) };
    with_items(|items| items.set(slot, item.as_slice(), now_s())).map(TrueOrNone)
}

fn get(arguments: &CallArguments<'_>) -> Option<Option<Vec<u8>>> {
    let slot = arguments.long(0)?;
    let Ok(slot) = u64::try_from(slot) else { return Some(None) };
    with_items(|items| items.get(slot))
}

/// The newest item, or with a number a list of this length.
fn last(arguments: &CallArguments<'_>) -> Option<Made> {
    let count = arguments.long_or(0, 0)?;
    let Ok(count) = u64::try_from(count) else {
        return raise(Error::Value, &format!("queue_last({count}): the number of items can't be below 0"));
    };
    let found = with_items(|items| items.last(count.max(1)))?;
    Some(Made(match count {
        0 => found.into_iter().next().flatten().into_python(),
        _ => found.into_python(),
    }))
}

/// Seconds since 1970, which uWSGI writes beside each item.
fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
