//! The export half of the derive: the part of each field kind in the description.

use crate::array::dims::Dims;
use crate::array::stream::PendingWork;
use crate::derive::fields::axes::StridesField;
use crate::derive::fields::device_and_owner::DeviceField;
use crate::derive::fields::stream::AsStream;
use crate::derive::raw_memory::RawMemory;
use crate::error::Result;
use crate::memory::info_builder::{InfoBuilder, StridesSource};

impl<F: StridesField> StridesSource for F {
    #[inline]
    fn list(&self, to: &mut Dims<i64>) -> Result<bool> {
        let Some(count) = self.count() else { return Ok(false) };
        *to = Dims::zeroed(count);
        self.write(to)?;
        Ok(true)
    }
}

impl<'a> InfoBuilder<'a> {
    /// Starts a description with the `data(unsafe_raw)` and `device` fields.
    pub fn raw<D: DeviceField>(memory: RawMemory, device: &D) -> Self {
        Self::new(memory.on(device.device()), None, false, PendingWork::UNKNOWN)
    }

    /// Sets the `strides` field.
    #[inline]
    pub fn strides<F: StridesField>(self, strides: &'a F) -> Self {
        Self { strides: Some(strides), ..self }
    }

    /// Sets the `strides(bytes)` field.
    #[inline]
    pub fn strides_in_bytes<F: StridesField>(self, strides: &'a F) -> Self {
        Self { strides: Some(strides), in_bytes: true, ..self }
    }

    /// Sets the `stream` field, which takes precedence over the storage's stream.
    #[inline]
    pub fn stream<F: AsStream>(mut self, stream: &F) -> Self {
        let field = stream.as_stream_on(self.memory.device);
        // The stream of the caller is another one. The caller's library goes on there, without a word to the field.
        let leaves_callers = match (self.uses, field, self.pending.name()) {
            (Some(uses), Some(field), Some(callers)) if field != callers => {
                uses.note_used();
                true
            }
            _ => false,
        };
        self.pending = self.pending.with_field(field);
        if leaves_callers {
            self.pending = self.pending.beside_hidden_streams();
        }
        self
    }
}
