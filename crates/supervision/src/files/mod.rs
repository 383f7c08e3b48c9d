//! Files at paths of the configuration, pidfiles, and files that are watched for changes.

pub mod file_watches;
mod fingerprint;
pub mod guarded_files;
pub mod pidfile;
mod watched_directories;
