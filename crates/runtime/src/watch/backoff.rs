//! Growing pauses between attempts.

use std::time::Duration;

use rand::Rng;

/// Exponential back-off with jitter: each pause is drawn from the upper half of a doubling bound, so that
/// replicas and kinds that failed together do not come back together.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Pauses from `first` to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// The next pause; the bound doubles.
    pub fn pause(&mut self) -> Duration {
        let bound = self.next;
        self.next = (bound * 2).min(self.longest);
        bound.mul_f64(rand::rng().random_range(0.5..=1.0))
    }

    /// Starts again at the first pause, after something went well.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_again_after_success() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        for bound in [100, 200, 350, 350] {
            let pause = backoff.pause();
            let bound = Duration::from_millis(bound);
            assert!(pause >= bound / 2 && pause <= bound, "{pause:?} of {bound:?}");
        }
        backoff.reset();
        assert!(backoff.pause() <= Duration::from_millis(100));
    }
}
