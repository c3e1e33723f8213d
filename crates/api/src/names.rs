//! What names Kubernetes takes: keys and values of labels.

/// The longest value of a label, and the longest key behind its prefix, in bytes.
const MAX_NAME: usize = 63;
/// The longest prefix of a key, in bytes.
const MAX_PREFIX: usize = 253;

/// Whether a text is the key of a label: a name, or a DNS subdomain and a name.
pub(crate) fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(key),
    }
}

/// Whether a text is the value of a label: a name, or nothing.
pub(crate) fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

fn is_name(text: &str) -> bool {
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= MAX_NAME
        && ends(text.bytes().next())
        && ends(text.bytes().last())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn is_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= MAX_PREFIX && text.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_those_that_kubernetes_takes() {
        for key in ["a", "A.b_c-9", "example.com/pool", "a-b.c/x", &"a".repeat(63)] {
            assert!(is_label_key(key), "{key}");
        }
        let long = "a".repeat(64);
        for key in [
            "", "-a", "a-", "a b", "/a", "a/", "a/b/c", "A/b", ".a/b", "a..b/c", "\u{e9}", &long,
        ] {
            assert!(!is_label_key(key), "{key}");
        }
        assert!(is_label_value("") && is_label_value("x_1.Y") && !is_label_value("a/b") && !is_label_value(&long));
    }
}
