//! Readers of packed records that make no Python objects of them.
//!
//! Nothing here knows what a record means: which field is where, and what becomes of it, is handed over.
//! Nor does anything here trust a length that it reads.

pub mod decode;
pub mod ids;
pub mod msgpack;
#[cfg(feature = "python")]
mod python;
pub mod records;
pub mod requests;
pub mod spans;
pub mod sums;
pub mod wire;
