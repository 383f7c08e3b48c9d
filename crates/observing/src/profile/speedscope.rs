//! The samples in the format of speedscope (<https://www.speedscope.app/file-format-schema.json>): one profile for each thread.
//! Pure.

use serde_json::{Value, json};

use crate::profile::samples::Samples;

/// Returns the file's content. `interval_s` is the time between two samples.
pub fn file(samples: &Samples, interval_s: f64, name: &str) -> Value {
    let mut frames: Vec<Value> = samples
        .frames
        .items()
        .iter()
        .map(|frame| json!({"name": frame.function, "file": frame.file, "line": frame.line}))
        .collect();
    // Each stack begins with its route, as in the flame graph.
    let first_route = frames.len();
    frames.extend(samples.routes.items().iter().map(|route| json!({"name": route})));
    let profiles: Vec<Value> = (0u32..)
        .zip(samples.threads.items())
        .map(|(number, thread)| {
            let taken = samples.taken.iter().filter(|sample| sample.thread == number);
            let stacks: Vec<Vec<usize>> = taken
                .map(|sample| {
                    let stack = samples.stacks.items()[sample.stack as usize].iter().map(|frame| *frame as usize);
                    std::iter::once(first_route + sample.route as usize).chain(stack).collect()
                })
                .collect();
            json!({
                "type": "sampled",
                "name": thread,
                "unit": "seconds",
                "startValue": 0,
                "endValue": interval_s * stacks.len() as f64,
                "weights": vec![interval_s; stacks.len()],
                "samples": stacks,
            })
        })
        .collect();
    json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("bolide ", env!("CARGO_PKG_VERSION")),
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": profiles,
    })
}
