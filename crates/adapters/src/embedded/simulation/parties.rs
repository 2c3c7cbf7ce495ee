//! Look-ups by recipient and by user against the reading of every message.

use tidegate_domain::{Filter, Page, Recipient};

use super::super::store;
use super::{World, user};

impl World {
    /// Of one each, by turns.
    pub(super) fn compare_parties(&self) {
        let name = format!("r{}", self.bodies % 4);
        let recipient = Some(Recipient::new(&name).unwrap());
        self.compare_party("recipient", &name, &Filter { recipient, ..Filter::default() });
        let user = user(self.bodies % 3);
        let name = user.as_str().to_owned();
        self.compare_party("user", &name, &Filter { user: Some(user), ..Filter::default() });
    }

    fn compare_party(&self, column: &str, name: &str, filter: &Filter) {
        let engine = self.engine.as_ref().unwrap();
        let db = engine.store().connection();
        let sql = format!("SELECT seq FROM message WHERE {column} = ?1 ORDER BY seq");
        let mut select = db.prepare(&sql).unwrap();
        let expected: Vec<u64> =
            select.query_map([name], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = Page { max: 7, body_bytes_max: None, after };
            let listed = store::list::list(db, engine.parties(), filter, &page, engine.book().salt);
            let listing = listed.unwrap();
            assert_eq!(listing.damaged, []);
            found.extend(listing.messages.iter().map(|record| record.id.seq()));
            after = listing.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "{column} {name}");
    }
}
