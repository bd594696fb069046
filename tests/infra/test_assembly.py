"""What would be deployed is read from what the CDK wrote, and told in full."""

from __future__ import annotations

from pathlib import Path

from infra.app import build_app
from infra.assembly import Asset, described, read


def test_an_assembly_names_its_stack_its_resources_and_what_is_uploaded(tmp_path: Path) -> None:
    build_app(context={"aws:cdk:bundling-stacks": []}, outdir=str(tmp_path)).synth()
    assembly = read(tmp_path)
    assert [stack.name for stack in assembly.stacks] == ["headrace-dev-data", "headrace-dev"]
    assert assembly.data.resources["AWS::DynamoDB::Table"] == 8
    resources = assembly.application.template["Resources"].values()
    code = {item["Properties"]["Code"].get("S3Key") for item in resources if item["Type"] == "AWS::Lambda::Function"}
    assert code - {None} == {asset.key for asset in assembly.assets if "Function" in asset.name and asset.is_zipped}
    assert not [asset for asset in assembly.assets if asset.path.name.endswith(".template.json")]
    told = described(assembly)
    for stack in assembly.stacks:
        assert f"{stack.name}: {stack.resources.total()} resources" in told
        assert all(type_ in told for type_ in stack.resources)
    assert all(asset.name in told for asset in assembly.assets)


def test_the_size_of_an_asset_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "sub" / "b").write_bytes(b"123")
    assert Asset(name="folder", path=tmp_path, is_zipped=True, key="k").size == 8
    assert Asset(name="file", path=tmp_path / "a", is_zipped=False, key="k").size == 5
