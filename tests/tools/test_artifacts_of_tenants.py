"""Files of a tenant's artifacts are removed as a whole, wherever they are, and no others."""

from __future__ import annotations

import pytest
from fsspec.implementations.local import LocalFileSystem

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import TEXT, Artifact
from owlclaw_ray.ids import ArtifactId, TenantId
from owlclaw_ray.tools.artifact_home import ArtifactsBySize
from owlclaw_ray.tools.artifacts import ArtifactFolder
from owlclaw_ray.tools.fsspec_artifacts import ObjectArtifacts

ACME, OTHER = TenantId("acme"), TenantId("acme-2")
HOMES = {
    "folder": ArtifactFolder,
    "objects": lambda path: ObjectArtifacts(LocalFileSystem(), str(path), "here", whole=False),
    "both": lambda path: ArtifactsBySize(ArtifactFolder(path / "small"), ArtifactFolder(path / "large"), 3),
}


@pytest.mark.parametrize("made", HOMES.values(), ids=HOMES.keys())
def test_the_artifacts_of_a_tenant_go_and_those_of_others_stay(made, tmp_path):
    home = made(tmp_path)
    for tenant in (ACME, OTHER):
        for number, content in enumerate((b"abc", b"a large one")):
            artifact = Artifact(ArtifactId(f"art_{number:026d}"), TEXT, content)
            home.put(AgentRef.parse("trader:AAPL", tenant), artifact)

    assert home.files_of(ACME) == home.remove_tenant(ACME) == 2

    assert (home.files_of(ACME), home.remove_tenant(ACME), home.files_of(OTHER)) == (0, 0, 2)
    assert home.listing(AgentRef.parse("trader:AAPL", ACME), 10) == []
