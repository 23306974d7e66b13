//! Raft's way to other controllers. There are none yet: a quorum has one voter, and a peer is unreachable.
//!
//! The requests are those of DECISIONS' private keys 20011 to 20014; they come with the three-voter quorum.

use std::future::Future;

use bytes::Bytes;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::{BasicNode, OptionalSend, RaftNetworkFactory, RaftNetworkV2};

use crate::raft_types::{Quorum, Vote};

/// Makes connections to peers.
pub(crate) struct NoPeers;

/// A peer that cannot be reached.
pub(crate) struct NoPeer(u64);

impl NoPeer {
    fn unreachable(&self) -> Unreachable<Quorum> {
        Unreachable::from_string(format!("controller {} is not a voter this node can reach", self.0))
    }
}

impl RaftNetworkFactory<Quorum> for NoPeers {
    type Network = NoPeer;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> NoPeer {
        NoPeer(target)
    }
}

impl RaftNetworkV2<Quorum> for NoPeer {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        _request: AppendEntriesRequest<Quorum>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Quorum>, RPCError<Quorum>> {
        Err(self.unreachable().into())
    }

    async fn vote(
        &mut self,
        _request: VoteRequest<Quorum>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Quorum>, RPCError<Quorum>> {
        Err(self.unreachable().into())
    }

    // The library's default grants blindly.
    async fn pre_vote(
        &mut self,
        _request: VoteRequest<Quorum>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Quorum>, RPCError<Quorum>> {
        Err(self.unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: openraft::type_config::alias::SnapshotOf<Quorum, Bytes>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Quorum>, StreamingError<Quorum>> {
        Err(self.unreachable().into())
    }
}
