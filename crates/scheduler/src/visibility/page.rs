//! Which part of a queue is asked for: `limit` and `offset`.

use sluice_api::visibility::{DEFAULT_LIMIT, MAX_LIMIT};

/// A part of a queue's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// The first position.
    pub(crate) offset: usize,
    /// How many at most.
    pub(crate) limit: usize,
}

impl Page {
    /// Reads it from the query of a request. Parameters that belong to all of Kubernetes' reads are passed over.
    ///
    /// # Errors
    ///
    /// Which parameter cannot be taken, and what can.
    pub(super) fn parse(query: &str) -> Result<Self, String> {
        let (mut offset, mut limit) = (0, DEFAULT_LIMIT);
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "offset" => offset = number(name, value, i32::MAX.unsigned_abs(), "")?,
                "limit" => {
                    let default = format!("; 0 stands for {DEFAULT_LIMIT}");
                    limit = match number(name, value, MAX_LIMIT, &default)? {
                        0 => DEFAULT_LIMIT,
                        limit => limit,
                    };
                }
                _ => {}
            }
        }
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Self {
            offset: size(offset),
            limit: size(limit),
        })
    }
}

fn number(name: &str, value: &str, most: u32, remark: &str) -> Result<u32, String> {
    let is_plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| is_plain && *number <= most);
    number.ok_or_else(|| format!("{name}={value} is not taken: it must be a whole number from 0 to {most}{remark}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(offset: usize, limit: usize) -> Page {
        Page { offset, limit }
    }

    #[test]
    fn without_parameters_it_is_the_first_thousand() {
        assert_eq!(Page::parse("").unwrap(), page(0, 1_000));
        assert_eq!(Page::parse("limit=0&timeout=5s&pretty").unwrap(), page(0, 1_000));
    }

    #[test]
    fn both_ends_of_the_range_are_taken() {
        assert_eq!(
            Page::parse("limit=100000&offset=2147483647").unwrap(),
            page(2_147_483_647, 100_000)
        );
        assert_eq!(Page::parse("offset=7&limit=1").unwrap(), page(7, 1));
    }

    #[test]
    fn what_is_out_of_range_or_no_number_is_refused_with_the_range() {
        for query in [
            "limit=100001",
            "limit=-1",
            "limit=",
            "limit=%2B5",
            "limit=+5",
            "limit=1e3",
            "limit=all",
        ] {
            let said = Page::parse(query).unwrap_err();
            assert!(said.contains("from 0 to 100000; 0 stands for 1000"), "{query}: {said}");
        }
        for query in ["offset=-1", "offset=2147483648", "offset=x"] {
            let said = Page::parse(query).unwrap_err();
            assert!(
                said.starts_with(query) && said.contains("from 0 to 2147483647"),
                "{query}: {said}"
            );
        }
    }
}
