//! `uwsgi.sharedarea_read` and the related functions, on the memory areas of the application. They exist where the configuration
//! has a `sharedarea`.

use std::time::{Duration, Instant};

use bolide_memory::region::Number;
use bolide_memory::shared_area::{AreaError, SharedArea, Waited};
use pyo3::exceptions::{PyOSError, PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::services::arguments::{CallArguments, TrueOrNone, functions};
use crate::services::attachment::attached;

/// Larger copies let other threads run Python code in the meantime.
const LONG_COPY_BYTES: usize = 64 * 1024;

functions! { FUNCTIONS:
    sharedarea_read(2..=3) read;
    sharedarea_readfast(2..=3) read;
    sharedarea_write(3..=3) write;
    sharedarea_read8(2..=2) |arguments| get::<i8>(arguments, "uwsgi_sharedarea_read8");
    sharedarea_readbyte(2..=2) |arguments| get::<i8>(arguments, "uwsgi_sharedarea_read8");
    sharedarea_read16(2..=2) |arguments| get::<i16>(arguments, "uwsgi_sharedarea_read16");
    sharedarea_read32(2..=2) |arguments| get::<i32>(arguments, "uwsgi_sharedarea_read32");
    sharedarea_read64(2..=2) |arguments| get::<i64>(arguments, "uwsgi_sharedarea_read64");
    sharedarea_readlong(2..=2) |arguments| get::<i64>(arguments, "uwsgi_sharedarea_read64");
    sharedarea_write8(3..=3) set8;
    sharedarea_writebyte(3..=3) set8;
    sharedarea_write16(3..=3) |arguments| set(arguments, arguments.low_bits(2)? as i16, "uwsgi_sharedarea_write16");
    sharedarea_write32(3..=3) |arguments| set(arguments, arguments.low_bits(2)? as i32, "uwsgi_sharedarea_write32");
    sharedarea_write64(3..=3) |arguments| set(arguments, arguments.long(2)?, "uwsgi_sharedarea_write64");
    sharedarea_writelong(3..=3) |arguments| set(arguments, arguments.long(2)?, "uwsgi_sharedarea_write64");
    sharedarea_inc8(2..=3) |arguments| add(arguments, amount::<i8>(arguments)?, "uwsgi_sharedarea_inc8");
    sharedarea_inc16(2..=3) |arguments| add(arguments, amount::<i16>(arguments)?, "uwsgi_sharedarea_inc16");
    sharedarea_inc32(2..=3) |arguments| add(arguments, amount::<i32>(arguments)?, "uwsgi_sharedarea_inc32");
    sharedarea_inc64(2..=3) |arguments| add(arguments, arguments.long_or(2, 1)?, "uwsgi_sharedarea_inc64");
    sharedarea_inclong(2..=3) |arguments| add(arguments, arguments.long_or(2, 1)?, "uwsgi_sharedarea_inc64");
    sharedarea_dec8(2..=3) |arguments| add(arguments, amount::<i8>(arguments)?.wrapping_neg(), "uwsgi_sharedarea_dec8");
    sharedarea_dec16(2..=3) |arguments| add(arguments, amount::<i16>(arguments)?.wrapping_neg(), "uwsgi_sharedarea_dec16");
    sharedarea_dec32(2..=3) |arguments| add(arguments, amount::<i32>(arguments)?.wrapping_neg(), "uwsgi_sharedarea_dec32");
    sharedarea_dec64(2..=3) |arguments| add(arguments, arguments.long_or(2, 1)?.wrapping_neg(), "uwsgi_sharedarea_dec64");
    sharedarea_rlock(1..=1) |arguments| take(arguments, "uwsgi_sharedarea_rlock", SharedArea::lock_for_reading);
    sharedarea_wlock(1..=1) |arguments| take(arguments, "uwsgi_sharedarea_wlock", SharedArea::lock_for_writing);
    sharedarea_unlock(1..=1) unlock;
    sharedarea_update(1..=1) update;
    sharedarea_wait(1..=3) wait;
    sharedarea_memoryview(1..=1) |arguments| view(arguments, "a memoryview object");
    sharedarea_object(1..=1) |arguments| view(arguments, "an object");
}

/// uWSGI's error, with the name of its function in C.
fn failed(function: &str) -> PyErr {
    PyValueError::new_err(format!("error calling {function}()"))
}

/// The number of a call's area, its first argument, and the area, if it exists.
fn numbered(arguments: &CallArguments<'_, '_>) -> PyResult<(i64, Option<&'static SharedArea>)> {
    let number = arguments.within(0, i32::MIN.into(), i32::MAX.into(), "signed integer")?;
    Ok((number, usize::try_from(number).ok().and_then(|number| attached()?.areas.get(number))))
}

fn area(arguments: &CallArguments<'_, '_>, function: &str) -> PyResult<&'static SharedArea> {
    numbered(arguments)?.1.ok_or_else(|| failed(function))
}

/// The area of a call and its second argument, a position in it.
fn area_at(arguments: &CallArguments<'_, '_>, function: &str) -> PyResult<(&'static SharedArea, usize)> {
    let (area, position) = (area(arguments, function)?, arguments.long(1)?);
    let position = usize::try_from(position).ok().filter(|position| *position < area.bytes());
    Ok((area, position.ok_or_else(|| failed(function))?))
}

/// Acts on an area immediately, or without the interpreter if a lock has to be waited for.
fn act<R: Send>(
    arguments: &CallArguments<'_, '_>,
    function: &str,
    area: &SharedArea,
    is_long: bool,
    mut act: impl FnMut(&SharedArea) -> Result<R, AreaError> + Send,
) -> PyResult<R> {
    let at_once = if is_long { Err(AreaError::Busy) } else { act(&area.without_waiting()) };
    let done = match at_once {
        Err(AreaError::Busy) => arguments.python.detach(|| act(area)),
        done => done,
    };
    match done {
        Ok(done) => Ok(done),
        Err(AreaError::OwnLock) => {
            let (number, _) = numbered(arguments)?;
            let message =
                format!("this thread has locked sharedarea {number}: {function}() would wait for itself; unlock it first");
            Err(PyRuntimeError::new_err(message))
        }
        Err(AreaError::Broken(error)) => Err(PyOSError::new_err(format!("{function}(): the lock can't be used: {error}"))),
        Err(AreaError::Outside | AreaError::NotLocked | AreaError::Busy) => Err(failed(function)),
    }
}

fn take(
    arguments: &CallArguments<'_, '_>,
    function: &str,
    lock: fn(&SharedArea) -> Result<(), AreaError>,
) -> PyResult<TrueOrNone> {
    act(arguments, function, area(arguments, function)?, false, lock).map(|()| None)
}

/// As in uWSGI, an area that this thread has not locked stays as it is.
fn unlock(arguments: &CallArguments<'_, '_>) -> PyResult<TrueOrNone> {
    let function = "uwsgi_sharedarea_unlock";
    match area(arguments, function)?.unlock() {
        Ok(()) | Err(AreaError::NotLocked) => Ok(None),
        Err(_) => Err(failed(function)),
    }
}

fn update(arguments: &CallArguments<'_, '_>) -> PyResult<TrueOrNone> {
    area(arguments, "uwsgi_sharedarea_update")?.note_change();
    Ok(None)
}

fn read<'py>(arguments: &CallArguments<'_, 'py>) -> PyResult<Bound<'py, PyBytes>> {
    let function = "uwsgi_sharedarea_read";
    let (area, position) = area_at(arguments, function)?;
    let rest = area.bytes() - position;
    let length = match usize::try_from(arguments.long_or(2, 0)?) {
        Ok(0) => rest,
        Ok(length) if length <= rest => length,
        _ => return Err(failed(function)),
    };
    PyBytes::new_with(arguments.python, length, |into| {
        act(arguments, function, area, length > LONG_COPY_BYTES, |area| area.read(position, into))
    })
}

fn write(arguments: &CallArguments<'_, '_>) -> PyResult<TrueOrNone> {
    let function = "uwsgi_sharedarea_write";
    let bytes = &*arguments.bytes(2)?;
    let (area, position) = area_at(arguments, function)?;
    act(arguments, function, area, bytes.len() > LONG_COPY_BYTES, |area| area.write(position, bytes)).map(|()| None)
}

fn get<T: Number + Send>(arguments: &CallArguments<'_, '_>, function: &str) -> PyResult<T> {
    let (area, position) = area_at(arguments, function)?;
    act(arguments, function, area, false, |area| area.get(position))
}

fn set<T: Number + Send>(arguments: &CallArguments<'_, '_>, number: T, function: &str) -> PyResult<TrueOrNone> {
    let (area, position) = area_at(arguments, function)?;
    act(arguments, function, area, false, move |area| area.set(position, number)).map(|()| None)
}

fn set8(arguments: &CallArguments<'_, '_>) -> PyResult<TrueOrNone> {
    let number = arguments.within(2, 0, u8::MAX.into(), "unsigned byte integer")?;
    set(arguments, number as u8 as i8, "uwsgi_sharedarea_write8")
}

fn add<T: Number + Send>(arguments: &CallArguments<'_, '_>, amount: T, function: &str) -> PyResult<TrueOrNone> {
    let (area, position) = area_at(arguments, function)?;
    act(arguments, function, area, false, move |area| area.add(position, amount)).map(|()| None)
}

/// The third argument, or 1.
fn amount<T: TryFrom<i64>>(arguments: &CallArguments<'_, '_>) -> PyResult<T> {
    let amount = arguments.long_or(2, 1)?;
    let bound = if amount < 0 { "less than minimum" } else { "greater than maximum" };
    T::try_from(amount).map_err(|_| PyOverflowError::new_err(format!("signed integer is {bound}")))
}

/// Waits for the next change: `sharedarea_wait(id[, freq, timeout])`. The frequency of uWSGI's looks does not matter here, since
/// the change itself wakes the thread.
fn wait(arguments: &CallArguments<'_, '_>) -> PyResult<TrueOrNone> {
    let function = "uwsgi_sharedarea_wait";
    let area = area(arguments, function)?;
    let (_, timeout_s) = (arguments.long_or(1, 0)?, arguments.long_or(2, 0)?);
    // 0 is not a limit, as in uWSGI.
    let end = u64::try_from(timeout_s).ok().filter(|seconds| *seconds > 0);
    let end = end.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds)));
    let seen = area.updates();
    loop {
        let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        if arguments.python.detach(|| area.wait(seen, left)) == Waited::Changed {
            return Ok(None);
        }
        if left.is_zero() {
            return Err(failed(function));
        }
        arguments.python.check_signals()?;
    }
}

/// A memoryview of the area itself. Its changes are not counted and do not take a lock, as in uWSGI.
fn view<'py>(arguments: &CallArguments<'_, 'py>, what: &str) -> PyResult<Bound<'py, PyAny>> {
    let (number, area) = numbered(arguments)?;
    let area = area.ok_or_else(|| PyValueError::new_err(format!("cannot get {what} from sharedarea {number}")))?;
    // SAFETY: the area stays mapped as long as the process lives, so longer than any view of it.
    unsafe {
        let view = ffi::PyMemoryView_FromMemory(area.start().cast(), area.bytes() as ffi::Py_ssize_t, ffi::PyBUF_WRITE);
        Bound::from_owned_ptr_or_err(arguments.python, view)
    }
}
