//! The export half of the derive: what each kind of field says about the array.

use crate::array::dims::Dims;
use crate::array::stream::StreamHandle;
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
    /// The `data(unsafe_raw)` field, with the `device` field.
    pub fn raw<D: DeviceField>(memory: RawMemory, device: &D) -> Self {
        Self::new(memory.on(device.device()), None, false, StreamHandle::NothingPending)
    }

    /// The `strides` field.
    #[inline]
    pub fn strides<F: StridesField>(self, strides: &'a F) -> Self {
        Self { strides: Some(strides), ..self }
    }

    /// The `strides(bytes)` field.
    #[inline]
    pub fn strides_in_bytes<F: StridesField>(self, strides: &'a F) -> Self {
        Self { strides: Some(strides), in_bytes: true, ..self }
    }

    /// The `stream` field, in the place of what the storage says.
    #[inline]
    pub fn stream<F: AsStream>(mut self, stream: &F) -> Self {
        self.stream = stream.as_stream_on(self.memory.device).unwrap_or(self.stream);
        self
    }
}
