use lapin::ErrorKind;
use lapin::protocol::AMQPError;
use tidegate_domain::BusError;

use crate::endpoint::Endpoint;

const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const PRECONDITION_FAILED: u16 = 406;
const NOT_ALLOWED: u16 = 530;

/// Why there is no bus: something that waiting does not mend. A broker that is not there is no reason; it may come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the URL is not of the form amqp://user:password@host:port/vhost")]
    BadUrl,
    #[error("the certificates to be trusted are none in PEM")]
    BadRoots,
    #[error(
        "{0:?} is no name for an exchange or a queue: it must have 1 to 245 bytes and not begin with \"amq.\""
    )]
    BadName(String),
    #[error("RabbitMQ at {at} does not let {user:?} in: {said}")]
    Login { at: String, user: String, said: String },
    #[error(
        "the {what} is already there at {at} and differs: {argument} is {found}, and would be {wanted}; remove it when \
         it is empty, or choose another name"
    )]
    Differs { at: String, what: String, argument: String, wanted: String, found: String },
    #[error("RabbitMQ at {at} refuses: {said}")]
    Refused { at: String, said: String },
}

/// Why there is no connection, or not with what we need.
#[derive(Debug)]
pub enum Fault {
    Away(String),
    /// The broker answered, and so it will answer again.
    Final(OpenError),
}

impl Fault {
    pub fn of_login(error: &lapin::Error, endpoint: &Endpoint) -> Self {
        let at = endpoint.to_string();
        match answer(error) {
            Some((ACCESS_REFUSED, said)) => {
                Self::Final(OpenError::Login { at, user: endpoint.user().to_owned(), said })
            }
            Some((NOT_ALLOWED, said)) => Self::Final(OpenError::Refused { at, said }),
            _ => Self::Away(describe(error)),
        }
    }

    pub fn of_declaration(error: &lapin::Error, endpoint: &Endpoint) -> Self {
        let at = endpoint.to_string();
        match answer(error) {
            Some((PRECONDITION_FAILED, said)) => {
                let refused = || OpenError::Refused { at: at.clone(), said: said.clone() };
                Self::Final(difference(&at, &said).unwrap_or_else(refused))
            }
            Some((ACCESS_REFUSED, said)) => Self::Final(OpenError::Refused { at, said }),
            _ => Self::Away(describe(error)),
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Away(why) => f.write_str(why),
            Self::Final(error) => error.fmt(f),
        }
    }
}

impl From<Fault> for BusError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Away(why) => Self::Away(why),
            Fault::Final(error) => Self::Refused(error.to_string()),
        }
    }
}

/// What an error means to whoever published or receives.
pub fn bus_error(error: &lapin::Error) -> BusError {
    match answer(error) {
        Some((ACCESS_REFUSED | NOT_FOUND | PRECONDITION_FAILED, said)) => BusError::Refused(said),
        _ => BusError::Away(describe(error)),
    }
}

pub fn describe(error: &lapin::Error) -> String {
    match error.kind() {
        ErrorKind::MissingHeartbeatError => "it does not answer".to_owned(),
        ErrorKind::IOError(error) => error.to_string(),
        ErrorKind::ProtocolError(error) => error.get_message().to_string(),
        _ => error.to_string(),
    }
}

/// What the broker said, and its number.
fn answer(error: &lapin::Error) -> Option<(u16, String)> {
    let ErrorKind::ProtocolError(error) = error.kind() else { return None };
    Some((AMQPError::get_id(error), error.get_message().to_string()))
}

/// Reads "… inequivalent arg 'durable' for queue 'sms' in vhost '/': received 'true' but current is 'false'".
fn difference(at: &str, said: &str) -> Option<OpenError> {
    let (_, rest) = said.split_once("inequivalent arg '")?;
    let (argument, rest) = rest.split_once("' for ")?;
    let (kind, rest) = rest.split_once(" '")?;
    let (name, rest) = rest.split_once("' in vhost '")?;
    let (_, values) = rest.split_once("': received ")?;
    let (wanted, found) = values.split_once(" but current is ")?;
    Some(OpenError::Differs {
        at: at.to_owned(),
        what: format!("{kind} {name:?}"),
        argument: argument.to_owned(),
        wanted: value(wanted),
        found: value(found),
    })
}

/// "the value '5' of type 'signedint'", "'true'", or "none".
fn value(text: &str) -> String {
    let text = text.split(" of type ").next().unwrap_or(text).trim_start_matches("the value ");
    if text == "none" { "not set".to_owned() } else { text.trim_matches('\'').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_named() {
        let read =
            |said: &str| difference("amqp://host:1", said).map(|error| error.to_string()).unwrap_or_default();
        let said = "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'sms.low' in vhost '/': received \
                    the value 'quorum' of type 'longstr' but current is none";
        let error = read(said);
        assert!(error.starts_with("the queue \"sms.low\" is already there at amqp://host:1"), "{error}");
        assert!(error.contains("x-queue-type is not set, and would be quorum"), "{error}");
        let said = "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'tidegate' in vhost 'v': received \
                    'direct' but current is 'topic'";
        assert!(read(said).contains("exchange \"tidegate\""));
        assert!(read(said).contains("type is topic, and would be direct"));
        let said = "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received none \
                    but current is the value '5' of type 'signedint'";
        assert!(read(said).contains("x-max-length is 5, and would be not set"));
        assert_eq!(difference("", "PRECONDITION_FAILED - unknown delivery tag 7"), None);
    }
}
