"""Checksums of the content of every raw file, by its folder below a mirror and its name.

`raw.raw_content_hash` computes them from parsed arrays, so it accepts a recompressed archive or a rewritten pickle with
equal content. The download stage refuses a file with other content; its message names the file and its checksum.
"""

_BY_FOLDER: dict[str, dict[str, str]] = {
    "Amazon/Computers/raw": {
        "amazon_electronics_computers.npz": "9aed0466a5623dc0b9305db1f6e524e3efa87f014168e83ba193cb1681c24a43",
    },
    "Amazon/Photo/raw": {
        "amazon_electronics_photo.npz": "bdadd681cac4fe72baaa4a4a75baf0058a470554273d93914ced33ee18a99802",
    },
    "CitationFull/dblp/raw": {
        "dblp.npz": "003427317e6bc83b480c1b1d7069662fb7816ea525bd34aba2e747676590f780",
    },
    "Coauthor/CS/raw": {
        "ms_academic_cs.npz": "05638feaa2299cf555ec749f023dfa603e1d27a1495b4c98c75f2e9807b6c6bc",
    },
    "Coauthor/Physics/raw": {
        "ms_academic_phy.npz": "c70eeb01342f84956a720c68c08acb32bf63a23e55ece8fdd724cd9528309f0a",
    },
    "FedGTA": {
        "CiteSeer.zip": "f13beaeb97f0d9f283a6d6b2b9a5fa093503126a4db7ddd2688c23a05498d31f",
        "Cora.zip": "69357b5d34df30218a1c76335e33e97159ec7af46559b78199ae8d3be0b2b15e",
    },
    "Planetoid/CiteSeer/raw": {
        "ind.citeseer.allx": "f022a0dfbddf66d0896167599ab025d1bc4eadcd27f5e42b78b8a5c01a876771",
        "ind.citeseer.ally": "3ffa4826f2de5620ddae0b77146abd8b95f337599832cb9c373face2848a4ddd",
        "ind.citeseer.graph": "d8aa72f2972cb76b252f832403ac963a69092a088f7fd97b435fc941df17ed3b",
        "ind.citeseer.test.index": "582726bbb14a98cbd92e46a1b5833515a6ba672530d2d57d2d3e0096da5cd303",
        "ind.citeseer.tx": "48df9535938cec2a38079817053ca388b8a30ffd17f925e9d06c38e5759f74f4",
        "ind.citeseer.ty": "ad9da070a0523ac5b72fc5defcf83f733a9940847f43da644ff815925e174192",
        "ind.citeseer.x": "0cca403b9e28cba778ada2aa76d815638d2d4f8f4bf94cce706ffea4faa4af74",
        "ind.citeseer.y": "5864cdc0fb43ad4d771fc9bb9519a8f0a818e9fc90e2045e6df3f6c1994cb2f6",
    },
    "Planetoid/Cora/raw": {
        "ind.cora.allx": "d50341460b4de9e26b3c91aa046a4528249240c7442270167f8a1beacd22ccf4",
        "ind.cora.ally": "47bc3cc6086fed21e1c4cf644d5de4f43e01e851e251689c2596289d81f08e40",
        "ind.cora.graph": "10d7d2104b43dfbc8fde0845032bb090ad6cb3a53d065f6861ca02a5574bf987",
        "ind.cora.test.index": "6e8c7b17508de5ce543a6e02537fc4f129dcb0606169ec647e7fc9361a785535",
        "ind.cora.tx": "b5e97bce76b13ca6da66d62a357fd6fe7a258c628616ec49a889a4ef844baab4",
        "ind.cora.ty": "cc299fa50ed7755bec321c0e5553258f046adf52000045358539e129b52a76bf",
        "ind.cora.x": "8507aea1954ff17a548082dcff67e14c19ac3e08e1e60edf35facc528fa46edf",
        "ind.cora.y": "8faea205d9c9603eda59781977d375b6905ec206a98abec24c57b3f0e4fd5938",
    },
    "Planetoid/PubMed/raw": {
        "ind.pubmed.allx": "53f64a234f7df944e9e16ada3edfd340ffc11c6615ca3f889ab93cfc11df230b",
        "ind.pubmed.ally": "7ae0ff4643fdbd1fea809538d6ba46cd76b6ef6e92d00604f8c7a56bb02e30ea",
        "ind.pubmed.graph": "43c01b39e15ce2b5d9a865e6e288e325cba176796d4c3e7975e508f4825c3593",
        "ind.pubmed.test.index": "2e7463f9b625918579312a15c3785f15cef958dac20812c424cecc36c7a39bc8",
        "ind.pubmed.tx": "a5473cb8b72f58a47058127e34d9f87a0324554179b5e1cadfecbd857b2f19f0",
        "ind.pubmed.ty": "e44be30ae4888c74161b5dc20a23c02b31523f566aabbde48e04622b8779d990",
        "ind.pubmed.x": "cbbcfe2444a02a5c8592f495877f021ef0a7a1531a27b9c57d7922ecb5595e68",
        "ind.pubmed.y": "6bbdb5f57167381dbc8a326aed4dee15dfdcfaeb527c6ba1369150d449842996",
    },
    "PolBlogs/raw": {
        "adjacency.tsv": "737d4ba83439bf8743a02f413b2e77ca0d8e229c6f97abe1f0b0e417bb7d4770",
        "labels.tsv": "bb0d39d2c97e9ed8bf2e6fa0cc2b067764c0675f94c49084c2e0b014d3cacb7d",
    },
}
RAW_FILES: dict[str, str] = {
    f"{folder}/{name}": digest for folder, files in _BY_FOLDER.items() for name, digest in files.items()
}
