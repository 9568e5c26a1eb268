//! What takes the detector milliseconds, on a thread of its own: models, scans and thresholds.
//!
//! In: the detector's jobs. Out: their answers, whenever they are there; traffic is looked at meanwhile.

use std::sync::mpsc::{Receiver, SendError, Sender, channel};

use anyhow::Context as _;
use sseismo_live_detector::{Answer, Detector, Job};

/// The thread's two ends. It ends with what it is doing when they are gone.
pub(super) struct Worker {
    jobs: Sender<Job>,
    answers: Receiver<Answer>,
}

impl Worker {
    /// Starts the thread.
    pub(super) fn start() -> anyhow::Result<Self> {
        let (jobs, todo) = channel::<Job>();
        let (done, answers) = channel();
        std::thread::Builder::new()
            .name("learning".to_owned())
            .spawn(move || todo.iter().map(Job::run).try_for_each(|answer| done.send(answer)))
            .context("cannot start the thread that learns")?;
        Ok(Self { jobs, answers })
    }

    /// Brings answers to the detector, and its jobs to the thread.
    pub(super) fn exchange(&self, detector: &mut Detector) {
        detector.take_answers(self.answers.try_iter());
        for job in detector.take_jobs() {
            if let Err(SendError(job)) = self.jobs.send(job) {
                detector.take_answers([job.run()]); // the thread is gone
            }
        }
    }
}
