//! The statistics of an instance: how they are collected, and where they are reported. It changes nothing in the instance. The
//! master runs it.

mod admission;
pub mod generations;
pub mod live;
pub mod metering;
pub mod observed;
pub mod overview;
pub mod proportional;
pub mod reporting;
pub mod routes;
pub mod site;
pub mod status;
pub mod view;
