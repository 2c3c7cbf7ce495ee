/// So many of a thing, for people to read: "1 minute", "5 minutes". For nouns that take an s.
pub fn counted(count: impl Into<u64>, noun: &str) -> String {
    let count = count.into();
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_thing_has_no_s() {
        assert_eq!([0, 1, 2].map(|n: u32| counted(n, "minute")), ["0 minutes", "1 minute", "2 minutes"]);
    }
}
