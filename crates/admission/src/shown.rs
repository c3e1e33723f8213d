//! Text of unknown origin inside a message.

use std::fmt;

/// The most characters of foreign text that a message repeats.
const LONGEST: usize = 80;

/// Foreign text in a message: quoted, control characters escaped, cut when it is long.
///
/// Messages travel in HTTP headers (admission warnings) and logs, so whoever wrote a Job must not be able to put
/// line breaks or megabytes there.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl Shown<'_> {
    /// The same without quotes.
    pub(crate) fn plain(&self) -> String {
        let mut text: String = self.0.chars().take(LONGEST * 2).flat_map(escaped).collect();
        if self.0.chars().nth(LONGEST * 2).is_some() {
            text.push_str("...");
        }
        text
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for character in self.0.chars().take(LONGEST).flat_map(escaped) {
            fmt::Write::write_char(f, character)?;
        }
        f.write_str(if self.0.chars().nth(LONGEST).is_some() {
            "...\""
        } else {
            "\""
        })
    }
}

/// Our own words with foreign ones in them: on one line, in ASCII, at most `longest` characters of them.
pub(crate) fn one_line(text: &str, longest: usize) -> String {
    let ends = text.chars().nth(longest).is_none();
    let kept = text
        .chars()
        .take(if ends { longest } else { longest.saturating_sub(3) });
    let mut line: String = kept
        .flat_map(|character| {
            let plain = (' '..='~').contains(&character);
            let escaped = (!plain).then(|| character.escape_default()).into_iter().flatten();
            plain.then_some(character).into_iter().chain(escaped)
        })
        .collect();
    if !ends {
        line.push_str("...");
    }
    line
}

fn escaped(character: char) -> impl Iterator<Item = char> {
    let plain = (' '..='~').contains(&character) && character != '"' && character != '\\';
    let raw = plain.then_some(character);
    raw.into_iter()
        .chain((!plain).then(|| character.escape_default()).into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_words_keep_their_quotes_and_stay_on_one_line() {
        assert_eq!(one_line("not \"a\"", 80), "not \"a\"");
        assert_eq!(one_line("a\r\n\u{e9}", 80), "a\\r\\n\\u{e9}");
        assert_eq!(one_line("12345678", 8), "12345678");
        assert_eq!(one_line("123456789", 8), "12345...");
    }

    #[test]
    fn foreign_text_is_quoted_escaped_and_cut() {
        assert_eq!(Shown("team-a").to_string(), "\"team-a\"");
        assert_eq!(Shown("a\r\nb\"c").to_string(), "\"a\\r\\nb\\\"c\"");
        assert_eq!(Shown("é").to_string(), "\"\\u{e9}\"");
        let long = Shown(&"x".repeat(1 << 20)).to_string();
        assert_eq!(long.len(), LONGEST + 5);
        assert!(long.ends_with("...\""));
    }
}
