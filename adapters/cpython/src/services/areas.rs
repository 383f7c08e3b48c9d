//! `uwsgi.sharedarea_read` and the related functions, on the memory areas of the application. They exist where the configuration
//! has a `sharedarea`.

use std::time::{Duration, Instant};

use bolide_memory::region::Number;
use bolide_memory::shared_area::{AreaError, SharedArea, Waited};
use pyo3::ffi;

use crate::services::arguments::{CallArguments, Error, Made, functions, raise, without_interpreter};
use crate::services::attachment::attached;

/// Larger copies let other threads run Python code meanwhile.
const LONG_COPY_BYTES: usize = 64 * 1024;

functions! { FUNCTIONS:
    sharedarea_read(2..=3) |arguments: CallArguments<'_>| read(&arguments, "uwsgi_sharedarea_read");
    sharedarea_readfast(2..=3) |arguments: CallArguments<'_>| read(&arguments, "uwsgi_sharedarea_read");
    sharedarea_write(3..=3) |arguments: CallArguments<'_>| write(&arguments);
    sharedarea_read8(2..=2) |arguments: CallArguments<'_>| get::<i8>(&arguments, "uwsgi_sharedarea_read8");
    sharedarea_readbyte(2..=2) |arguments: CallArguments<'_>| get::<i8>(&arguments, "uwsgi_sharedarea_read8");
    sharedarea_read16(2..=2) |arguments: CallArguments<'_>| get::<i16>(&arguments, "uwsgi_sharedarea_read16");
    sharedarea_read32(2..=2) |arguments: CallArguments<'_>| get::<i32>(&arguments, "uwsgi_sharedarea_read32");
    sharedarea_read64(2..=2) |arguments: CallArguments<'_>| get::<i64>(&arguments, "uwsgi_sharedarea_read64");
    sharedarea_readlong(2..=2) |arguments: CallArguments<'_>| get::<i64>(&arguments, "uwsgi_sharedarea_read64");
    sharedarea_write8(3..=3) |arguments: CallArguments<'_>| set8(&arguments);
    sharedarea_writebyte(3..=3) |arguments: CallArguments<'_>| set8(&arguments);
    sharedarea_write16(3..=3) |arguments: CallArguments<'_>| {
        let number = arguments.low_bits(2)? as i16;
        set(&arguments, number, "uwsgi_sharedarea_write16")
    };
    sharedarea_write32(3..=3) |arguments: CallArguments<'_>| {
        let number = arguments.low_bits(2)? as i32;
        set(&arguments, number, "uwsgi_sharedarea_write32")
    };
    sharedarea_write64(3..=3) |arguments: CallArguments<'_>| set(&arguments, arguments.long(2)?, "uwsgi_sharedarea_write64");
    sharedarea_writelong(3..=3) |arguments: CallArguments<'_>| set(&arguments, arguments.long(2)?, "uwsgi_sharedarea_write64");
    sharedarea_inc8(2..=3) |arguments: CallArguments<'_>| add(&arguments, amount8(&arguments)?, "uwsgi_sharedarea_inc8");
    sharedarea_inc16(2..=3) |arguments: CallArguments<'_>| add(&arguments, amount16(&arguments)?, "uwsgi_sharedarea_inc16");
    sharedarea_inc32(2..=3) |arguments: CallArguments<'_>| add(&arguments, amount32(&arguments)?, "uwsgi_sharedarea_inc32");
    sharedarea_inc64(2..=3) |arguments: CallArguments<'_>| add(&arguments, arguments.long_or(2, 1)?, "uwsgi_sharedarea_inc64");
    sharedarea_inclong(2..=3) |arguments: CallArguments<'_>| add(&arguments, arguments.long_or(2, 1)?, "uwsgi_sharedarea_inc64");
    sharedarea_dec8(2..=3) |arguments: CallArguments<'_>| {
        add(&arguments, amount8(&arguments)?.wrapping_neg(), "uwsgi_sharedarea_dec8")
    };
    sharedarea_dec16(2..=3) |arguments: CallArguments<'_>| {
        add(&arguments, amount16(&arguments)?.wrapping_neg(), "uwsgi_sharedarea_dec16")
    };
    sharedarea_dec32(2..=3) |arguments: CallArguments<'_>| {
        add(&arguments, amount32(&arguments)?.wrapping_neg(), "uwsgi_sharedarea_dec32")
    };
    sharedarea_dec64(2..=3) |arguments: CallArguments<'_>| {
        add(&arguments, arguments.long_or(2, 1)?.wrapping_neg(), "uwsgi_sharedarea_dec64")
    };
    sharedarea_rlock(1..=1) |arguments: CallArguments<'_>| {
        on_area(&arguments, "uwsgi_sharedarea_rlock", SharedArea::lock_for_reading)
    };
    sharedarea_wlock(1..=1) |arguments: CallArguments<'_>| {
        on_area(&arguments, "uwsgi_sharedarea_wlock", SharedArea::lock_for_writing)
    };
    sharedarea_unlock(1..=1) |arguments: CallArguments<'_>| unlock(&arguments);
    sharedarea_update(1..=1) |arguments: CallArguments<'_>| area(&arguments, "uwsgi_sharedarea_update").map(|area| area.note_change());
    sharedarea_wait(1..=3) |arguments: CallArguments<'_>| wait(&arguments);
    sharedarea_memoryview(1..=1) |arguments: CallArguments<'_>| view(&arguments, "a memoryview object");
    sharedarea_object(1..=1) |arguments: CallArguments<'_>| view(&arguments, "an object");
}

/// uWSGI's error, with the name of its function in C.
fn failed<T>(function: &str) -> Option<T> {
    raise(Error::Value, &format!("error calling {function}()"))
}

/// The area of a call: its number is the first argument.
fn area(arguments: &CallArguments<'_>, function: &str) -> Option<&'static SharedArea> {
    let number = number_of(arguments)?;
    match usize::try_from(number).ok().and_then(|number| attached()?.areas.get(number)) {
        Some(area) => Some(area),
        None => failed(function),
    }
}

fn number_of(arguments: &CallArguments<'_>) -> Option<i64> {
    arguments.within(0, i32::MIN.into(), i32::MAX.into(), "signed integer")
}

/// The area of a call and its second argument, a position in it.
fn area_at(arguments: &CallArguments<'_>, function: &str) -> Option<(&'static SharedArea, usize)> {
    let (area, position) = (area(arguments, function)?, arguments.long(1)?);
    match usize::try_from(position).ok().filter(|position| *position < area.bytes()) {
        Some(position) => Some((area, position)),
        None => failed(function),
    }
}

/// Acts on an area at once, or without the interpreter if a lock has to be waited for. The act touches no Python object.
fn act<R>(
    arguments: &CallArguments<'_>,
    function: &str,
    area: &SharedArea,
    is_long: bool,
    mut act: impl FnMut(&SharedArea) -> Result<R, AreaError>,
) -> Option<R> {
    let at_once = if is_long { Err(AreaError::Busy) } else { act(&area.without_waiting()) };
    let done = match at_once {
        Err(AreaError::Busy) => without_interpreter(|| act(area)),
        done => done,
    };
    match done {
        Ok(done) => Some(done),
        Err(AreaError::OwnLock) => {
            let number = number_of(arguments)?;
            let message =
                format!("this thread has locked sharedarea {number}: {function}() would wait for itself; unlock it first");
            raise(Error::Runtime, &message)
        }
        Err(AreaError::Broken(error)) => raise(Error::Os, &format!("{function}(): the lock can't be used: {error}")),
        Err(AreaError::Outside | AreaError::NotLocked | AreaError::Busy) => failed(function),
    }
}

fn on_area(arguments: &CallArguments<'_>, function: &str, lock: fn(&SharedArea) -> Result<(), AreaError>) -> Option<()> {
    act(arguments, function, area(arguments, function)?, false, lock)
}

/// As in uWSGI, an area that this thread has not locked stays as it is.
fn unlock(arguments: &CallArguments<'_>) -> Option<()> {
    let function = "uwsgi_sharedarea_unlock";
    match area(arguments, function)?.unlock() {
        Ok(()) | Err(AreaError::NotLocked) => Some(()),
        Err(_) => failed(function),
    }
}

fn read(arguments: &CallArguments<'_>, function: &str) -> Option<Made> {
    let (area, position) = area_at(arguments, function)?;
    let rest = area.bytes() - position;
    let length = match usize::try_from(arguments.long_or(2, 0)?) {
        Ok(0) => rest,
        Ok(length) if length <= rest => length,
        _ => return failed(function),
    };
    // SAFETY: new bytes, which no other code knows until they are returned, so they may be written through their address.
    unsafe {
        let bytes = ffi::PyBytes_FromStringAndSize(std::ptr::null(), length as ffi::Py_ssize_t);
        if bytes.is_null() {
            return None;
        }
        let into = std::slice::from_raw_parts_mut(ffi::PyBytes_AsString(bytes).cast::<u8>(), length);
        match act(arguments, function, area, length > LONG_COPY_BYTES, |area| area.read(position, into)) {
            Some(()) => Some(Made(bytes)),
            None => {
                ffi::Py_DECREF(bytes);
                None
            }
        }
    }
}

fn write(arguments: &CallArguments<'_>) -> Option<()> {
    let function = "uwsgi_sharedarea_write";
    let bytes = arguments.bytes(2)?;
    let (area, position) = area_at(arguments, function)?;
    let bytes = bytes.as_slice();
    act(arguments, function, area, bytes.len() > LONG_COPY_BYTES, |area| area.write(position, bytes))
}

fn get<T: Number + Into<i64>>(arguments: &CallArguments<'_>, function: &str) -> Option<i64> {
    let (area, position) = area_at(arguments, function)?;
    act(arguments, function, area, false, |area| area.get::<T>(position)).map(T::into)
}

fn set<T: Number>(arguments: &CallArguments<'_>, number: T, function: &str) -> Option<()> {
    let (area, position) = area_at(arguments, function)?;
    act(arguments, function, area, false, |area| area.set(position, number))
}

fn set8(arguments: &CallArguments<'_>) -> Option<()> {
    let number = arguments.within(2, 0, u8::MAX.into(), "unsigned byte integer")?;
    set(arguments, number as u8 as i8, "uwsgi_sharedarea_write8")
}

fn add<T: Number>(arguments: &CallArguments<'_>, amount: T, function: &str) -> Option<()> {
    let (area, position) = area_at(arguments, function)?;
    act(arguments, function, area, false, |area| area.add(position, amount))
}

fn amount8(arguments: &CallArguments<'_>) -> Option<i8> {
    amount(arguments, i8::MIN.into(), i8::MAX.into()).map(|amount| amount as i8)
}

fn amount16(arguments: &CallArguments<'_>) -> Option<i16> {
    amount(arguments, i16::MIN.into(), i16::MAX.into()).map(|amount| amount as i16)
}

fn amount32(arguments: &CallArguments<'_>) -> Option<i32> {
    amount(arguments, i32::MIN.into(), i32::MAX.into()).map(|amount| amount as i32)
}

/// The third argument within these bounds, or 1.
fn amount(arguments: &CallArguments<'_>, least: i64, most: i64) -> Option<i64> {
    if arguments.has(2) { arguments.within(2, least, most, "signed integer") } else { Some(1) }
}

/// Waits for the next change: `sharedarea_wait(id[, freq, timeout])`. The frequency of uWSGI's looks does not matter here, since the
/// change itself wakes the thread.
fn wait(arguments: &CallArguments<'_>) -> Option<()> {
    let function = "uwsgi_sharedarea_wait";
    let area = area(arguments, function)?;
    let (_, timeout_s) = (arguments.long_or(1, 0)?, arguments.long_or(2, 0)?);
    // 0 is no limit, as in uWSGI.
    let end = u64::try_from(timeout_s).ok().filter(|seconds| *seconds > 0);
    let end = end.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds)));
    let seen = area.updates();
    loop {
        let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        if without_interpreter(|| area.wait(seen, left)) == Waited::Changed {
            return Some(());
        }
        if left.is_zero() {
            return failed(function);
        }
        // SAFETY: the thread holds the interpreter again.
        if unsafe { ffi::PyErr_CheckSignals() } != 0 {
            return None;
        }
    }
}

/// A memoryview of the area itself. Its changes are not counted and take no lock, as in uWSGI.
fn view(arguments: &CallArguments<'_>, what: &str) -> Option<Made> {
    let number = number_of(arguments)?;
    let Some(area) = usize::try_from(number).ok().and_then(|number| attached()?.areas.get(number)) else {
        return raise(Error::Value, &format!("cannot get {what} from sharedarea {number}"));
    };
    // SAFETY: the area stays mapped as long as the process lives, so longer than any view of it.
    let view = unsafe { ffi::PyMemoryView_FromMemory(area.start().cast(), area.bytes() as ffi::Py_ssize_t, ffi::PyBUF_WRITE) };
    (!view.is_null()).then_some(Made(view))
}
