//! May this go, and if not now, when?

mod quota;
pub mod slot;

pub use quota::{Charge, Deferrals, Quota};
