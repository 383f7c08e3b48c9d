//! The exporter: a child of the master that sends the spans of requests to a collector of OpenTelemetry (`otlp`). Workers give it
//! spans over a socket whose both ends the master keeps, so those in it survive reloads, and the exporter's death. The master
//! forks it without exec, before it starts any thread, and only with that option. It has no application code, no listening socket
//! and no log: its lines and counts are packets to the master. It ends with the master, after a last attempt to send what it has.

mod exporter;
pub mod exporters;
mod posting;
mod queue;
pub mod socket;
