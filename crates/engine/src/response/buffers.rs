//! Buffers that a thread lends to the current answer, so that a request allocates none and an idle connection has none.
//!
//! It does not know about answers. Each worker thread has its own.

/// A buffer beyond this size is freed after its answer.
const KEPT_BYTES: usize = 256 * 1024;

#[derive(Debug, Default)]
pub struct ResponseBuffers {
    /// For the head's fields.
    pub head: Vec<u8>,
    /// For the data that is sent.
    pub output: Vec<u8>,
}

impl ResponseBuffers {
    pub fn lend(&mut self) -> ResponseBuffers {
        std::mem::take(self)
    }

    /// Takes the buffers of an answer back.
    pub fn keep(&mut self, used: ResponseBuffers) {
        keep(&mut self.head, used.head);
        keep(&mut self.output, used.output);
    }
}

fn keep(spare: &mut Vec<u8>, buffer: Vec<u8>) {
    if buffer.capacity() <= KEPT_BYTES && buffer.capacity() > spare.capacity() {
        *spare = buffer;
    }
}
