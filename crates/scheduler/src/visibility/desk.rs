//! Where readers ask the brain, and how little of its time they get.
//!
//! Answers come from the one task that decides, so positions are exact and of one moment. It looks at the channel of
//! questions only while readers have used less than a tenth of its time: no number of readers slows admissions down by
//! more than that.

use std::time::Duration;

use sluice_index::{Index, Pending};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::page::Page;
use super::target::Queue;

/// Questions that may wait for the brain.
const QUESTIONS: usize = 64;
/// Longest that a reader waits for the brain.
const PATIENCE: Duration = Duration::from_secs(5);
/// After a question the others wait for as many times what it took.
const SHARE: u32 = 10;
/// Readers who were quiet may use so much at once.
const CREDIT: Duration = Duration::from_millis(20);

/// A question to the brain.
#[derive(Debug)]
struct Question {
    queue: Queue,
    page: Page,
    reply: oneshot::Sender<Found>,
}

/// What the brain says.
#[derive(Debug)]
pub(super) struct Found {
    /// None if the queue does not exist.
    pub(super) pending: Option<Pending>,
    /// Whether this replica leads.
    pub(super) leads: bool,
}

/// Why the brain did not say anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoAnswer {
    /// Too many others ask.
    #[error("too many requests for pending workloads wait on this replica")]
    Crowded,
    /// It took too long, or the process ends.
    #[error("this replica could not answer in time")]
    Late,
}

/// The readers' end.
#[derive(Clone, Debug)]
pub(super) struct Desk(mpsc::Sender<Question>);

/// The brain's end.
#[derive(Debug)]
pub(crate) struct Readers {
    questions: mpsc::Receiver<Question>,
    /// When the next question is looked at.
    next: Instant,
}

/// A desk and who answers at it.
pub(super) fn desk() -> (Desk, Readers) {
    let (asked, questions) = mpsc::channel(QUESTIONS);
    let readers = Readers {
        questions,
        next: Instant::now(),
    };
    (Desk(asked), readers)
}

impl Desk {
    /// Asks the brain.
    pub(super) async fn ask(&self, queue: Queue, page: Page) -> Result<Found, NoAnswer> {
        let (reply, answered) = oneshot::channel();
        let question = Question { queue, page, reply };
        self.0.try_send(question).map_err(|error| match error {
            TrySendError::Full(_) => NoAnswer::Crowded,
            TrySendError::Closed(_) => NoAnswer::Late,
        })?;
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(_)) | Err(_) => Err(NoAnswer::Late),
        }
    }
}

/// A question whose turn it is.
#[derive(Debug)]
pub(crate) struct Asked(Question);

impl Readers {
    /// Nobody who ever asks.
    pub(crate) fn none() -> Self {
        desk().1
    }

    /// The next question, once it is its turn; none when nobody can ask any more.
    pub(crate) async fn next(&mut self) -> Option<Asked> {
        tokio::time::sleep_until(self.next).await;
        loop {
            let question = self.questions.recv().await?;
            // Whoever gave up needs no answer.
            if !question.reply.is_closed() {
                return Some(Asked(question));
            }
        }
    }

    /// Answers a question.
    pub(crate) fn answer(&mut self, Asked(question): Asked, index: &Index, leads: bool) {
        let started = Instant::now();
        let Page { offset, limit } = question.page;
        let pending = match &question.queue {
            Queue::Cluster(name) => index.pending_in_cluster_queue(name, offset, limit),
            Queue::Local(key) => index.pending_in_local_queue(key, offset, limit),
        };
        self.charge(started, started.elapsed());
        // The reader may have given up meanwhile.
        let _closed = question.reply.send(Found { pending, leads });
    }

    fn charge(&mut self, started: Instant, spent: Duration) {
        let from = started.checked_sub(CREDIT).unwrap_or(started).max(self.next);
        self.next = from + spent * SHARE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Page = Page { offset: 0, limit: 1 };

    fn queue() -> Queue {
        Queue::Cluster("cq".into())
    }

    #[tokio::test]
    async fn the_brain_answers_whoever_still_waits() {
        let (desk, mut readers) = desk();
        let gave_up = desk.clone();
        tokio::time::timeout(Duration::from_millis(1), gave_up.ask(queue(), PAGE))
            .await
            .unwrap_err();
        let asking = tokio::spawn(async move { desk.ask(queue(), PAGE).await });
        let asked = readers.next().await.unwrap();
        readers.answer(asked, &Index::new("sluice-system"), true);
        let found = asking.await.unwrap().unwrap();
        assert!(found.pending.is_none() && found.leads);
    }

    #[tokio::test]
    async fn nobody_waits_behind_a_full_desk() {
        let (desk, readers) = desk();
        let waiting: Vec<_> = (0..QUESTIONS).map(|_| desk.0.try_reserve().unwrap()).collect();
        assert_eq!(desk.ask(queue(), PAGE).await.unwrap_err(), NoAnswer::Crowded);
        drop(waiting);
        drop(readers);
        assert_eq!(desk.ask(queue(), PAGE).await.unwrap_err(), NoAnswer::Late);
    }

    #[test]
    fn readers_get_a_tenth_of_the_time_and_a_small_credit() {
        let mut readers = Readers::none();
        let start = Instant::now() + Duration::from_secs(10);
        let spent = Duration::from_millis(1);
        readers.charge(start, spent);
        assert!(readers.next <= start, "the credit covers the first questions");
        readers.charge(start, spent);
        readers.charge(start, spent);
        assert_eq!(readers.next, start + Duration::from_millis(10));
        readers.charge(start + Duration::from_millis(10), 30 * spent);
        assert_eq!(readers.next, start + Duration::from_millis(310));
    }
}
