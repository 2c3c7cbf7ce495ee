//! Many rows with few statements: each statement has its price, whatever it inserts.

use rusqlite::{Connection, Statement, ToSql};

/// Rows of one statement, the most first; groups of all sizes are made of these.
const ROWS: [usize; 3] = [64, 8, 1];

/// How rows are inserted into some columns of a table.
pub(super) struct Insert {
    statements: [String; ROWS.len()],
}

impl Insert {
    pub(super) fn new(table: &str, columns: &[&str]) -> Self {
        let row = format!("({})", vec!["?"; columns.len()].join(", "));
        let statement = |rows: usize| {
            let values = vec![row.as_str(); rows].join(", ");
            format!("INSERT INTO {table} ({}) VALUES {values}", columns.join(", "))
        };
        Self { statements: ROWS.map(statement) }
    }

    /// `bind` puts a row's values in the order of the columns.
    pub(super) fn run<R>(
        &self,
        db: &Connection,
        mut rows: &[R],
        bind: impl Fn(&R, &mut Values<'_, '_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        for (count, statement) in ROWS.into_iter().zip(&self.statements) {
            let (now, later) = rows.split_at(rows.len() - rows.len() % count);
            rows = later;
            if !now.is_empty() {
                let mut insert = db.prepare_cached(statement)?;
                now.chunks(count).try_for_each(|rows| insert_rows(&mut insert, rows, &bind))?;
            }
        }
        Ok(())
    }
}

fn insert_rows<R>(
    insert: &mut Statement<'_>,
    rows: &[R],
    bind: impl Fn(&R, &mut Values<'_, '_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut values = Values { statement: insert, bound: 0 };
    for row in rows {
        bind(row, &mut values)?;
    }
    debug_assert_eq!(values.bound, values.statement.parameter_count(), "a value for every column");
    insert.raw_execute()?;
    Ok(())
}

/// The values of the rows of one statement, one after the other.
pub(super) struct Values<'a, 'db> {
    statement: &'a mut Statement<'db>,
    bound: usize,
}

impl Values<'_, '_> {
    pub(super) fn put(&mut self, value: impl ToSql) -> rusqlite::Result<()> {
        self.bound += 1;
        self.statement.raw_bind_parameter(self.bound, value)
    }

    pub(super) fn put_all<const N: usize>(&mut self, numbers: [i64; N]) -> rusqlite::Result<()> {
        numbers.into_iter().try_for_each(|number| self.put(number))
    }
}
