//! Everything about HTTP that is not about messages: the accept loop and its deadlines, limits on what
//! a client may send, who the client is, the policies in front of every route, and the one shape in which
//! errors leave.
//!
//! The application is an [`axum::Router`]. [`Edge::wrap`] puts the checks around it, [`serve`] puts it
//! on a socket.
//!
//! Architecture invariant: nothing in this crate knows a message, a queue or a ledger.

mod accept;
mod audit;
mod auth;
mod bodies;
mod body;
mod connection;
mod cross_site;
mod deadline;
mod edge;
mod error;
mod head;
mod held;
mod json;
mod limits;
mod network;
mod policies;
mod request_id;
mod sent;
mod shares;
mod tally;
mod wire;

pub use accept::serve;
pub use audit::{AUDIT, Audit};
pub use auth::{Principal, PrincipalSpec, Principals, Role, check_password_hash, hash_password, new_api_key};
pub use body::{read_body, read_json, read_json_or_array, read_optional_json};
pub use connection::ClientAddr;
pub use edge::Edge;
pub use error::{ApiError, Faults, FieldError};
pub use held::hold_until_sent;
pub use limits::{Limits, bind_is_loopback};
pub use policies::{Cidr, GateOptions, HeaderStyle, PRIORITY, PolicyGate};
pub use sent::Sent;
