use tokio::sync::watch;

/// Says once, to everyone who listens, that it is time to stop.
#[derive(Debug)]
pub struct StopSignal(watch::Sender<bool>);

#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<bool>);

impl StopSignal {
    pub fn new() -> (Self, Stop) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), Stop(receiver))
    }

    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Resolves when it is time to stop; also when the signal is gone, since nobody could give it any more.
    pub async fn wait(&mut self) {
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}
