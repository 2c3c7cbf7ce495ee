//! Many rows with few statements: each statement has its price, whatever it inserts.

use rusqlite::{Connection, Statement, ToSql};

/// Rows of one statement; what is left over goes row by row.
const ROWS: usize = 32;

/// How rows are inserted into some columns of a table.
pub(super) struct Insert {
    one: String,
    many: String,
}

impl Insert {
    pub(super) fn new(table: &str, columns: &[&str]) -> Self {
        let row = format!("({})", vec!["?"; columns.len()].join(", "));
        let statement = |rows: usize| {
            let values = vec![row.as_str(); rows].join(", ");
            format!("INSERT INTO {table} ({}) VALUES {values}", columns.join(", "))
        };
        Self { one: statement(1), many: statement(ROWS) }
    }

    /// `bind` puts a row's values in the order of the columns.
    pub(super) fn run<R>(
        &self,
        db: &Connection,
        rows: &[R],
        bind: impl Fn(&R, &mut Values<'_, '_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let (many, left) = rows.as_chunks::<ROWS>();
        if !many.is_empty() {
            let mut insert = db.prepare_cached(&self.many)?;
            for rows in many {
                insert_rows(&mut insert, rows, &bind)?;
            }
        }
        if !left.is_empty() {
            let mut insert = db.prepare_cached(&self.one)?;
            for row in left {
                insert_rows(&mut insert, std::slice::from_ref(row), &bind)?;
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
