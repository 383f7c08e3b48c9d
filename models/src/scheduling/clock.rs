//! Replaces the server's precise clock. It stands still in a model, whose outcome must not depend on how fast the model runs.

pub fn precise_us() -> u64 {
    0
}
