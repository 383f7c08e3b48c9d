//! The numbers of an instance: how they are taken, and where they are told. The master runs it.

pub mod reporting;
pub mod status;
pub mod view;
