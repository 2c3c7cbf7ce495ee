use std::io::Write as _;
use std::process::ExitCode;

use tidegate_domain::transfer::{Kind, Stock};

use crate::cli::secrets;

/// What was read and what was written, and the books before and after. Where standard output is the archive, it goes to
/// standard error.
/// A reader who has left is no reason to give up a move that has succeeded.
pub fn print(from: (&str, &Stock), to: (&str, &Stock), stdout_taken: bool) {
    let text = table(from, to);
    let printed = if stdout_taken {
        std::io::stderr().write_all(text.as_bytes()).map_err(anyhow::Error::from)
    } else {
        secrets::print(&text).map(|_: ExitCode| ())
    };
    if let Err(error) = printed {
        tracing::warn!(%error, "the counts can't be shown");
    }
}

fn table((from, read): (&str, &Stock), (to, written): (&str, &Stock)) -> String {
    let mut text = row("", from, to);
    for kind in Kind::ALL {
        text.push_str(&compared(kind.as_str(), read.inventory.of(kind), written.inventory.of(kind)));
    }
    text.push_str(&row("books", from, to));
    let books = |stock: &Stock| {
        let books = stock.books;
        let pending = books.pending().unwrap_or(0);
        [books.admitted, books.delivered, books.dead, books.expired, books.deleted, pending]
    };
    let names = ["admitted", "delivered", "dead", "expired", "deleted", "pending"];
    for ((name, read), written) in names.into_iter().zip(books(read)).zip(books(written)) {
        text.push_str(&compared(name, read, written));
    }
    let sound = read == written && written.is_balanced();
    text.push_str(if sound { "balanced\n" } else { "NOT BALANCED\n" });
    text
}

fn compared(name: &str, read: u64, written: u64) -> String {
    let mut line = row(name, &read.to_string(), &written.to_string());
    if read != written {
        line.insert_str(line.len() - 1, "  differs");
    }
    line
}

fn row(name: &str, from: &str, to: &str) -> String {
    format!("{name:<14}{from:>14}{to:>14}\n")
}

#[cfg(test)]
mod tests {
    use tidegate_domain::transfer::{Books, Inventory};

    use super::*;

    #[test]
    fn what_differs_is_said_where_it_does() {
        let mut inventory = Inventory::default();
        inventory.add(Kind::Pending, 1);
        let books = Books { admitted: 3, delivered: 2, ..Books::default() };
        let stock = Stock { inventory, books };
        let same = table(("ledger", &stock), ("archive", &stock));
        assert!(same.ends_with("balanced\n") && !same.contains("differs"), "{same}");
        inventory.add(Kind::Keys, 1);
        let other = table(("ledger", &stock), ("archive", &Stock { inventory, books }));
        assert!(other.contains("keys                       0             1  differs\n"), "{other}");
        assert!(other.ends_with("NOT BALANCED\n"), "{other}");
    }
}
