use tidegate_domain::LedgerError;
use tokio_postgres::error::{Severity, SqlState};

/// Why the ledger can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the connection settings are wrong: {0}")]
    Settings(String),
    /// Says what lies behind it: no source to be told beside it.
    #[error("cannot use PostgreSQL: {}", told(.0))]
    Server(tokio_postgres::Error),
    #[error("cannot use PostgreSQL: {0}")]
    Ledger(LedgerError),
    #[error(
        "{0} is off on the server: a crash of its machine would lose what was acknowledged; turn it on, or say with \
         postgres.unsafe_server = \"allow\" that this may happen"
    )]
    Unsafe(&'static str),
    #[error("PostgreSQL {0} is too old: 15 or later is needed")]
    TooOld(String),
    #[error("{0}")]
    Refused(String),
    #[error(
        "somebody else has been changing the ledger's schema, or importing into it, for longer than {0:?}"
    )]
    Migrating(std::time::Duration),
    #[error("the database has been changed by a newer gateway, which this one can't work beside")]
    Newer,
}

impl From<tokio_postgres::Error> for OpenError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Server(error)
    }
}

impl From<LedgerError> for OpenError {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

/// What an error says, and what to do about it where that is known.
fn told(error: &tokio_postgres::Error) -> String {
    let said = describe(error);
    if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        return format!(
            "{said}; `tidegate migrate` makes the schema as a role that may, whose grants let others use it (README, \
             On PostgreSQL)"
        );
    }
    said
}

/// The error and what lies behind it, each once.
pub fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(answer) = error.as_db_error() {
        return format!("{} ({})", answer.message(), answer.code().code());
    }
    let mut said = error.to_string();
    let mut behind = std::error::Error::source(error);
    while let Some(cause) = behind {
        let cause_said = cause.to_string();
        if !said.ends_with(&cause_said) {
            said = format!("{said}: {cause_said}");
        }
        behind = cause.source();
    }
    said
}

/// Whether a statement changes anything: then a lost answer leaves its outcome open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// Another gateway used a key, or placed an event, at the same moment: to be decided anew.
pub const RACE: &str = "TG001";
/// A check failed, and the only one there is says which numbers a partition holds: there is none for the newest.
pub const NO_PARTITION: &str = "23514";
/// A slot configuration has changed since it was read: to be read anew.
pub const STALE_CONFIG: &str = "TG002";
/// All open time is full that the statement knows of, and there is more: to be asked for anew.
pub const MORE_RANGES: &str = "TG003";

/// Classes of errors that say that a statement makes no sense: cardinality, data, integrity, syntax and names, limits of
/// the program, and what a function of the schema raised by itself. Asked again, the server would say the same.
const DEFECTS: [&str; 6] = ["21", "22", "23", "42", "54", "P0"];
/// Of these classes, and yet no defect: a partition that is still to be made, rights that are still to be granted, and a
/// pooler that knows the statement from another session.
const NO_DEFECTS: [&str; 3] = [NO_PARTITION, "42501", "42P05"];

/// What to tell of an error that is a defect of ours: what was violated, and by which operation. Without the values, which
/// are the callers'.
pub fn defect(error: &tokio_postgres::Error, sql: &str) -> Option<String> {
    let answer = error.as_db_error()?;
    let code = answer.code().code();
    if NO_DEFECTS.contains(&code) || !DEFECTS.iter().any(|class| code.starts_with(class)) {
        return None;
    }
    let mut said = format!("{} fails: {} (SQLSTATE {code}", operation(sql), answer.message());
    for (what, name) in
        [("constraint", answer.constraint()), ("table", answer.table()), ("column", answer.column())]
    {
        if let Some(name) = name {
            said = format!("{said}, {what} {name}");
        }
    }
    Some(format!("{said})"))
}

/// The function that a statement calls; otherwise how it begins.
fn operation(sql: &str) -> &str {
    const WORDS_BYTES_MAX: usize = 40;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let called = sql.find('(').map(|end| &sql[..end]);
    let name = called.map(|head| &head[head.rfind(|c| !is_name(c)).map_or(0, |at| at + 1)..]);
    name.filter(|name| !name.is_empty()).unwrap_or(&sql[..sql.floor_char_boundary(WORDS_BYTES_MAX)])
}

/// A statement is its own transaction, so what failed with an answer has not happened. Without an answer, or when
/// the server is going down with it, nobody knows.
pub fn ledger_error(error: &tokio_postgres::Error, access: Access) -> LedgerError {
    let Some(answer) = error.as_db_error() else {
        return lost(access, describe(error));
    };
    let (code, said) = (answer.code(), describe(error));
    if *code == SqlState::DISK_FULL {
        LedgerError::NoSpace(said)
    } else if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED {
        LedgerError::Corrupt(said)
    } else if matches!(answer.parsed_severity(), Some(Severity::Fatal | Severity::Panic)) {
        lost(access, said)
    } else {
        LedgerError::Unavailable(said)
    }
}

pub fn lost(access: Access, said: String) -> LedgerError {
    match access {
        Access::Read => LedgerError::Unavailable(said),
        Access::Write => LedgerError::OutcomeUnknown(said),
    }
}

pub fn is_code(error: &tokio_postgres::Error, code: &str) -> bool {
    error.code().is_some_and(|known| known.code() == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_told_by_the_function_that_it_calls() {
        assert_eq!(operation("SELECT place, queue FROM settle($1, $2)"), "settle");
        assert_eq!(operation("SELECT end_leases($1)"), "end_leases");
        assert_eq!(operation("DELETE FROM quota WHERE user_id = $1"), "DELETE FROM quota WHERE user_id = $1");
    }
}
