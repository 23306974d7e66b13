//! Claims about links and connections.

use super::*;

struct Net {
    network: Network,
    now: Moment,
    random: Random,
}

const A: Site = Site(0);
const B: Site = Site(1);

fn address(site: Site, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(site.0 + 1).unwrap()], port))
}

fn waiter() -> Waiter {
    Waiter { shard: 0, op: OpId::new(0, 1) }
}

impl Net {
    fn new(seed: u64) -> Net {
        Net { network: Network::new(Random::seeded(seed)), now: Moment::START, random: Random::seeded(seed + 1) }
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(next) = self.network.next_at().filter(|next| *next <= end) {
            self.now = next;
            self.network.advance(next);
        }
        self.now = end;
    }

    fn connect(&mut self) -> (Port, Port) {
        let (listener, _) = self.network.listen(B, address(B, 9092));
        let dialer = self.network.dial(self.now, (A, address(A, 0).ip()), (B, address(B, 9092)), waiter());
        self.run(Duration::from_millis(2));
        assert_eq!(self.network.dialed(dialer).unwrap().unwrap(), address(B, 9092));
        let (acceptor, peer) = self.network.accept(listener, waiter()).unwrap();
        assert_eq!(peer.ip(), address(A, 0).ip());
        (dialer, acceptor)
    }

    fn send(&mut self, port: Port, bytes: &[u8]) -> Option<io::Result<()>> {
        let mut parts = VecDeque::from([Bytes::copy_from_slice(bytes)]);
        self.network.send(self.now, port, &mut parts, waiter())
    }

    fn receive(&mut self, port: Port) -> Option<Result<Vec<u8>, i32>> {
        let mut buffer = BytesMut::with_capacity(1 << 20);
        let received = self.network.receive(port, &mut buffer, waiter())?;
        Some(received.map(|_| buffer.to_vec()).map_err(|error| error.raw_os_error().unwrap()))
    }
}

#[test]
fn bytes_arrive_in_order_whatever_their_latencies() {
    for seed in 0..20 {
        let mut net = Net::new(seed);
        let (dialer, acceptor) = net.connect();
        let mut sent = Vec::new();
        let mut received = Vec::new();
        while sent.len() < 100_000 {
            let mut bytes = vec![0; net.random.index(5000) + 1];
            net.random.fill(&mut bytes);
            net.send(dialer, &bytes).unwrap().unwrap();
            sent.extend(bytes);
            let pause = net.random.within(0..300);
            net.run(Duration::from_micros(pause));
            received.extend(net.receive(acceptor).map_or(Vec::new(), Result::unwrap));
        }
        net.network.close(net.now, dialer);
        net.run(Duration::from_millis(2));
        received.extend(net.receive(acceptor).map_or(Vec::new(), Result::unwrap));
        assert!(received == sent, "seed {seed}");
        assert_eq!(net.receive(acceptor), Some(Ok(Vec::new())));
    }
}

#[test]
fn nobody_listening_refuses_and_a_cut_link_lets_a_dial_wait_until_it_is_healed() {
    let mut net = Net::new(1);
    let refused = net.network.dial(net.now, (A, address(A, 0).ip()), (B, address(B, 1)), waiter());
    net.run(Duration::from_millis(2));
    let error = net.network.dialed(refused).unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    net.network.cut(net.now, B, A);
    net.network.listen(B, address(B, 2));
    let waiting = net.network.dial(net.now, (A, address(A, 0).ip()), (B, address(B, 2)), waiter());
    net.run(Duration::from_secs(1));
    assert!(net.network.dialed(waiting).is_none());
    net.network.heal(net.now, B, A);
    net.run(Duration::from_millis(2));
    assert!(net.network.dialed(waiting).unwrap().is_ok());
}

#[test]
fn a_cut_link_holds_bytes_in_one_direction_and_delivers_them_when_healed() {
    let mut net = Net::new(2);
    let (dialer, acceptor) = net.connect();
    net.network.cut(net.now, A, B);
    net.send(dialer, b"held ").unwrap().unwrap();
    net.send(acceptor, b"passes").unwrap().unwrap();
    net.run(Duration::from_secs(4));
    net.send(dialer, b"bytes").unwrap().unwrap();
    assert_eq!(net.receive(acceptor), None);
    assert_eq!(net.receive(dialer), Some(Ok(b"passes".to_vec())));
    net.network.heal(net.now, A, B);
    net.run(Duration::from_millis(2));
    assert_eq!(net.receive(acceptor), Some(Ok(b"held bytes".to_vec())));
}

#[test]
fn a_sender_gives_up_on_a_link_that_stays_cut_and_its_peer_is_reset_after_the_heal() {
    let mut net = Net::new(3);
    let (dialer, acceptor) = net.connect();
    net.network.cut(net.now, A, B);
    net.send(dialer, b"lost").unwrap().unwrap();
    net.run(Duration::from_secs(61));
    assert_eq!(net.receive(dialer), Some(Err(libc::ETIMEDOUT)));
    assert!(net.send(dialer, b"more").unwrap().is_err());
    assert_eq!(net.receive(acceptor), None);
    net.network.close(net.now, dialer);
    net.network.heal(net.now, A, B);
    net.run(Duration::from_millis(2));
    assert_eq!(net.receive(acceptor), Some(Err(libc::ECONNRESET)));
}

#[test]
fn a_sender_waits_when_the_reader_does_not_read() {
    let mut net = Net::new(4);
    let (dialer, acceptor) = net.connect();
    let mut parts = VecDeque::from([Bytes::from(vec![7; connection::WINDOW_BYTES + 10])]);
    assert!(net.network.send(net.now, dialer, &mut parts, waiter()).is_none());
    assert_eq!(parts[0].len(), 10);
    net.run(Duration::from_millis(2));
    net.network.take_woken(&mut Vec::new());
    let mut received = net.receive(acceptor).unwrap().unwrap().len();
    let mut woken = Vec::new();
    net.network.take_woken(&mut woken);
    assert_eq!(woken, [waiter()]);
    assert!(net.network.send(net.now, dialer, &mut parts, waiter()).unwrap().is_ok());
    net.run(Duration::from_millis(2));
    received += net.receive(acceptor).map_or(0, |received| received.unwrap().len());
    assert_eq!(received, connection::WINDOW_BYTES + 10);
}

#[test]
fn a_killed_machine_ends_its_connections_and_a_silent_one_is_noticed_late() {
    for seed in 0..20 {
        let mut net = Net::new(seed);
        let (_, acceptor) = net.connect();
        net.network.kill(net.now, A);
        net.run(Duration::from_millis(2));
        assert!(
            matches!(net.receive(acceptor), Some(Ok(end)) if end.is_empty()) || net.receive(acceptor).unwrap().is_err()
        );
        let mut net = Net::new(seed);
        let (_, acceptor) = net.connect();
        net.network.power_off(net.now, A);
        net.run(Duration::from_secs(4));
        assert_eq!(net.receive(acceptor), None);
        if seed % 2 == 0 {
            net.network.power_on(net.now, A);
            net.run(Duration::from_millis(2));
            assert_eq!(net.receive(acceptor), Some(Err(libc::ECONNRESET)));
        } else {
            net.run(Duration::from_secs(57));
            assert_eq!(net.receive(acceptor), Some(Err(libc::ETIMEDOUT)));
        }
    }
}

#[test]
fn bytes_to_a_closed_end_are_answered_with_a_reset() {
    let mut net = Net::new(5);
    let (dialer, acceptor) = net.connect();
    net.network.close(net.now, acceptor);
    net.run(Duration::from_millis(2));
    assert_eq!(net.receive(dialer), Some(Ok(Vec::new())));
    net.send(dialer, b"late").unwrap().unwrap();
    net.run(Duration::from_millis(2));
    assert!(net.send(dialer, b"later").unwrap().is_err());
    net.network.close(net.now, dialer);
    assert!(net.network.connections.is_empty());
}
