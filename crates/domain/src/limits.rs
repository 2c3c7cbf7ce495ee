//! May this go, and if not now, when?

mod quota;

pub use quota::{Charge, Quota};
