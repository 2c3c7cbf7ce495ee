use super::*;

fn matches(pattern: &str, path: &str) -> bool {
    PathPattern::new(pattern).unwrap().matches(path)
}

/// From the tests of Spring's `AntPathMatcher`, those that concern paths of requests.
#[test]
fn it_agrees_with_spring() {
    let yes = [
        ("/test", "/test"),
        ("/", "/"),
        ("/t?st", "/test"),
        ("/??st", "/test"),
        ("/tes?", "/test"),
        ("/*", "/test"),
        ("/*", "/"),
        ("/test*", "/test"),
        ("/test*", "/testTest"),
        ("/*test*", "/AnothertestTest"),
        ("/*test", "/Anothertest"),
        ("/test/*", "/test/Test"),
        ("/test/*", "/test/"),
        ("/test*aaa", "/testblaaaa"),
        ("/bla/**/bla", "/bla/testing/testing/bla"),
        ("/bla/**/**/bla", "/bla/testing/testing/bla/bla"),
        ("/**", "/testing/testing"),
        ("/**", "/"),
        ("/*/**", "/testing/testing"),
        ("/**/*", "/testing/testing"),
        ("/bla/**/**/bla", "/bla/bla"),
        ("/**/test", "/bla/bla/test"),
        ("/bla*bla/test", "/blaXXXbla/test"),
        ("/*bla/test", "/XXXbla/test"),
        ("/????", "/bala"),
        ("/?bla*", "/abla"),
        ("/api/**", "/api"),
        ("/api/**", "/api/"),
        ("/api/**", "/api/send/"),
        ("/api/**/", "/api"),
        ("/foo/bar/**", "/foo/bar"),
        ("/x/x/**/bla", "/x/x/x/x/x/x/bla"),
        ("/api/", "/api/"),
        ("//api///send", "/api/send"),
    ];
    let no = [
        ("/test", "/test/"),
        ("/test/", "/test"),
        ("/tes?", "/tes"),
        ("/tes?", "/testt"),
        ("/test*", "/tst"),
        ("/test*", "/test/t"),
        ("/test/*", "/test"),
        ("/*test*", "/tst"),
        ("/test*aaa", "/test"),
        ("/bla*bla/test", "/blaXXXbl/test"),
        ("/????", "/bala/bla"),
        ("/**/*bla", "/bla/bla/bla/bbb"),
        ("/x/x/**/bla", "/x/x/x/"),
        ("/**/*", "/"),
        ("/**/*", "/a/"),
        ("/**/a/*", "/x/a/"),
        ("/api/**", "/apis"),
        ("/API", "/api"),
        ("/foo/bar/**/baz", "/foo/bar"),
    ];
    for (pattern, path) in yes {
        assert!(matches(pattern, path), "{pattern} should match {path}");
    }
    for (pattern, path) in no {
        assert!(!matches(pattern, path), "{pattern} should not match {path}");
    }
}

#[test]
fn plain_patterns_match_as_the_others_do() {
    let paths =
        ["/", "/api", "/api/", "//api", "/api//send", "/api/send", "/api/send/", "/apis", "/x/api", "", "*"];
    for text in ["/", "/**", "/api", "/api/", "/api/**", "/api/send", "/api/send/**"] {
        let pattern = PathPattern::new(text).unwrap();
        assert_ne!(pattern.plain, Plain::Not);
        for path in paths {
            assert_eq!(pattern.matches(path), pattern.matches_segments(path), "{text} {path}");
        }
    }
}

#[test]
fn characters_are_not_bytes() {
    assert!(matches("/gr??e", "/größe") && matches("/*ße", "/größe") && !matches("/gr?e", "/größe"));
}

#[test]
fn no_pattern_makes_matching_explode() {
    let deep = format!("/{}", "a/".repeat(8_000));
    let wide = format!("/{}", "a".repeat(16_000));
    let stars = format!("/{}b", "**/a/".repeat(50));
    let globs = format!("/{}b", "a*".repeat(120));
    // Exponential matchers never return from these.
    assert!(!matches(&stars, &deep));
    assert!(!matches(&globs, &wide));
    assert!(!matches(&stars, &wide));
    assert!(matches(&format!("/{}*", "a*".repeat(120)), &wide));
}

#[test]
fn bad_patterns_say_what_is_wrong() {
    let wrong = |text: &str| PathPattern::new(text).unwrap_err();
    assert_eq!(wrong(""), BadPattern::NoSlash);
    assert_eq!(wrong("api/**"), BadPattern::NoSlash);
    assert_eq!(wrong("/api/{id}"), BadPattern::Braces);
    assert_eq!(wrong("/a b"), BadPattern::Character);
    assert_eq!(wrong(&format!("/{}", "a".repeat(256))), BadPattern::TooLong);
    assert!(wrong("/api/{id}").to_string().contains("'*'"));
}
