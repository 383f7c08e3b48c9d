//! Access control lists of files (acl(5)): the permissions of a user in addition to the mode. It must not know the users of the
//! configuration. Runs in the process that reads the configuration.

use std::path::Path;

use rustix::fs::getxattr;
use rustix::io::Errno;

/// The attribute that contains a list, and its layout (linux/posix_acl_xattr.h): a version, then entries of a tag, permissions
/// and a number.
const ATTRIBUTE: &str = "system.posix_acl_access";
const VERSION: u32 = 2;
const VERSION_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// Most entries that are read; file systems limit lists to far fewer.
const MAX_ENTRIES: usize = 1024;

const USER: u16 = 0x02;
const GROUP_OF_FILE: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;
/// Permissions that a list that can't be read may grant.
const ALL_RIGHTS: u32 = 0o7;

/// The entries of a file's list.
#[derive(Debug, PartialEq, Eq)]
pub struct AccessList(Vec<Grant>);

#[derive(Debug, PartialEq, Eq)]
struct Grant {
    tag: u16,
    rights: u16,
    number: u32,
}

impl AccessList {
    /// Returns the list of a file, following links; `None` if the mode is complete.
    pub fn of(path: &Path) -> Option<AccessList> {
        let mut bytes = vec![0; VERSION_BYTES + MAX_ENTRIES * ENTRY_BYTES];
        match getxattr(path, ATTRIBUTE, &mut bytes) {
            Ok(length) => Some(AccessList::read(&bytes[..length.min(bytes.len())])),
            // Too long to be read: it counts as one that grants everything.
            Err(Errno::RANGE) => Some(AccessList(Vec::new())),
            Err(_) => None,
        }
    }

    /// A list of an unknown layout has no entries.
    fn read(bytes: &[u8]) -> AccessList {
        let (version, entries) = bytes.split_at(VERSION_BYTES.min(bytes.len()));
        if version != VERSION.to_le_bytes() {
            return AccessList(Vec::new());
        }
        let grant = |bytes: &[u8; ENTRY_BYTES]| {
            let [tag, tag_high, rights, rights_high, number @ ..] = *bytes;
            Grant {
                tag: u16::from_le_bytes([tag, tag_high]),
                rights: u16::from_le_bytes([rights, rights_high]),
                number: u32::from_le_bytes(number),
            }
        };
        AccessList(entries.as_chunks().0.iter().map(grant).collect())
    }

    /// The permissions of a user that does not own the file, as the bits of one class of a mode. The result combines the
    /// permissions of several groups; the kernel grants no more than that.
    pub fn rights_of(&self, user: u32, groups: &[u32], group_of_file: u32) -> u32 {
        if self.0.is_empty() {
            return ALL_RIGHTS;
        }
        let mask = self.0.iter().find(|entry| entry.tag == MASK).map_or(u16::MAX, |entry| entry.rights);
        if let Some(own) = self.0.iter().find(|entry| entry.tag == USER && entry.number == user) {
            return (own.rights & mask).into();
        }
        let is_in = |entry: &&Grant| match entry.tag {
            GROUP => groups.contains(&entry.number),
            GROUP_OF_FILE => groups.contains(&group_of_file),
            _ => false,
        };
        let of_groups = self.0.iter().filter(is_in).map(|entry| entry.rights & mask).reduce(|all, one| all | one);
        let others = self.0.iter().find(|entry| entry.tag == OTHERS).map_or(0, |entry| entry.rights);
        of_groups.unwrap_or(others).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> AccessList {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, rights, number) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(rights.to_le_bytes());
            bytes.extend(number.to_le_bytes());
        }
        AccessList::read(&bytes)
    }

    #[test]
    fn a_list_grants_the_rights_of_the_first_matching_class_within_the_mask() {
        let found = list(&[
            (1, 7, 0),
            (USER, 7, 33),
            (GROUP_OF_FILE, 5, 0),
            (GROUP, 6, 50),
            (GROUP, 1, 51),
            (MASK, 6, 0),
            (OTHERS, 4, 0),
        ]);
        for (user, groups, expected) in
            [(33, &[][..], 6), (34, &[50], 6), (34, &[51], 0), (34, &[50, 51], 6), (34, &[9], 4), (34, &[60], 4), (33, &[51], 6)]
        {
            assert_eq!(found.rights_of(user, groups, 9), expected, "{user} {groups:?}");
        }
    }

    #[test]
    fn a_malformed_list_grants_everything() {
        for bytes in [&b""[..], b"\x02", b"\x03\0\0\0", b"\x03\0\0\0\x02\0\x07\0\x21\0\0\0"] {
            assert_eq!(AccessList::read(bytes).rights_of(33, &[], 0), ALL_RIGHTS, "{bytes:?}");
        }
        assert_eq!(AccessList::of(Path::new("/proc/self/stat")), None);
    }
}
