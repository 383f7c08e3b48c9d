//! Descriptors that raise alarms when they can be read (`alarm-fd`). The master has inherited them. It never waits for them. The
//! master runs it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use bolide_contract::alarms::{AlarmDescriptor, Alarms};
use bolide_supervision::error::StartError;
use bolide_supervision::polling::Source;
use bolide_supervision::system;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::read;

use crate::token::Token;

/// The watched descriptors.
#[derive(Debug, Default)]
pub struct Descriptors {
    list: Vec<AlarmSource>,
}

/// A copy of an inherited descriptor, and the alarms that it raises.
#[derive(Debug)]
struct AlarmSource {
    number: i32,
    copy: OwnedFd,
    /// The alarm, its message, and the bytes that are read for it.
    alarms: Vec<(String, String)>,
    bytes: usize,
    /// Bytes that were read for the next alarm.
    taken: usize,
}

/// Checks that the descriptors are open.
///
/// # Errors
/// One is not.
pub fn check(alarms: &Alarms) -> Result<(), StartError> {
    for one in &alarms.descriptors {
        system::copy_of(one.descriptor).map_err(|error| {
            let advice = "the process that starts Bolide has to open it and pass it on";
            StartError::new(format!("{}: descriptor {} of alarm-fd: {error}: {advice}", one.origin, one.descriptor))
        })?;
    }
    Ok(())
}

impl Descriptors {
    /// The descriptors of these settings. One that is not open is logged, and raises nothing.
    pub fn of(alarms: &Alarms) -> Descriptors {
        let mut list: Vec<AlarmSource> = Vec::new();
        for AlarmDescriptor { alarm, descriptor, bytes, message, origin } in &alarms.descriptors {
            let raised = (alarm.clone(), message.clone());
            // As in uWSGI, the first alarm of a descriptor reads it.
            if let Some(known) = list.iter_mut().find(|known| known.number == *descriptor) {
                known.alarms.push(raised);
                continue;
            }
            match system::copy_of(*descriptor).and_then(never_waiting) {
                Ok(copy) => {
                    list.push(AlarmSource { number: *descriptor, copy, alarms: vec![raised], bytes: *bytes as usize, taken: 0 })
                }
                Err(error) => {
                    bolide_log::quiet_line(&format!("{origin}: descriptor {descriptor} of alarm-fd can't be watched: {error}"));
                }
            }
        }
        Descriptors { list }
    }

    pub fn sources(&self) -> impl Iterator<Item = Source<'_, Token>> {
        self.list.iter().map(|one| Source::readable(Token::AlarmDescriptor(one.number), one.copy.as_fd()))
    }

    /// Reads a descriptor that the poll has reported. Returns the alarms that it raises, with their messages.
    pub fn read(&mut self, number: i32) -> Vec<(String, String)> {
        let Some(position) = self.list.iter().position(|one| one.number == number) else { return Vec::new() };
        let one = &mut self.list[position];
        // The kernel wants room for a whole number of an eventfd, which comes in one piece.
        let mut bytes = vec![0; one.bytes - one.taken];
        let trouble = match read(&one.copy, &mut bytes) {
            Ok(0) => "end of file".to_owned(),
            Ok(count) if one.taken + count < one.bytes => {
                one.taken += count;
                return Vec::new();
            }
            Ok(_) => {
                one.taken = 0;
                return one.alarms.clone();
            }
            Err(Errno::EAGAIN | Errno::EINTR) => return Vec::new(),
            Err(error) => error.to_string(),
        };
        bolide_log::quiet_line(&format!("descriptor {number} of alarm-fd is no longer watched: {trouble}"));
        self.list.remove(position);
        Vec::new()
    }
}

/// Another process may have read what the poll has reported, and the master must not wait then. Only processes that read the same
/// descriptor notice the flag: the other end of a pipe has flags of its own.
fn never_waiting(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlag::from_bits_retain(fcntl(&descriptor, FcntlArg::F_GETFL)?);
    fcntl(&descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(descriptor)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_descriptor_raises_its_alarms_for_each_number_of_bytes_and_none_at_its_end() {
        let (reader, mut writer) = std::io::pipe().expect("made");
        let descriptor = reader.as_raw_fd();
        let one = |alarm: &str| AlarmDescriptor {
            alarm: alarm.to_owned(),
            descriptor,
            bytes: 4,
            message: "m".to_owned(),
            origin: "test".to_owned(),
        };
        let settings = Alarms { descriptors: vec![one("a"), one("b")], ..Alarms::default() };
        assert!(check(&settings).is_ok());
        let mut descriptors = Descriptors::of(&settings);
        for (text, count) in [("xyz", 0), ("x", 2), ("full", 2)] {
            writer.write_all(text.as_bytes()).expect("written");
            assert_eq!(descriptors.read(descriptor).len(), count, "{text}");
        }
        drop(writer);
        // A program that another test starts holds a copy of the write end until its exec, so the end of file may come later.
        assert_eq!(descriptors.read(descriptor + 1), Vec::new());
    }

    #[test]
    fn a_descriptor_that_is_not_open_is_an_error_with_its_line() {
        let origin = "uwsgi.ini:7".to_owned();
        let closed = AlarmDescriptor { alarm: "a".to_owned(), descriptor: i32::MAX, bytes: 1, message: String::new(), origin };
        let settings = Alarms { descriptors: vec![closed], ..Alarms::default() };
        let error = check(&settings).expect_err("refused").to_string();
        assert!(error.starts_with("uwsgi.ini:7: descriptor 2147483647 of alarm-fd: "), "{error}");
        assert_eq!(Descriptors::of(&settings).sources().count(), 0);
    }
}
