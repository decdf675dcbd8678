"""Distances are those that a plain search finds, for graphs of every kind, by every method and from
any vertex.

Usage: numbers_test.py PROGRAM
"""
import os
import sys
import tempfile

import sssp_support as support


def random_graph(dice, vertices, edges, most_weight):
    lists = [[] for _ in range(vertices)]
    for _ in range(edges):
        lists[dice.randrange(vertices)].append((dice.randrange(vertices),
                                                dice.randint(0, most_weight)))
    return support.Graph.of_lists(lists)


def graphs(dice):
    """Name, graph, and the vertices to begin at."""
    yield "one vertex", support.Graph.of_lists([[]]), [0]
    yield "one loop", support.Graph.of_lists([[(0, 0)]]), [0]
    yield "two apart", support.Graph.of_lists([[], [(1, 3)]]), [0, 1]
    yield ("shorter by far",
           support.Graph.of_lists([[(1, 1000), (2, 1)], [(3, 1)], [(4, 1)], [], [(1, 1)]]), [0])
    chain = [[(i + 1, 1 + i % 100)] for i in range(3000)] + [[]]
    yield "chain", support.Graph.of_lists(chain), [0, 2999]
    yield "chain of nothing", support.Graph.of_lists([[(i + 1, 0)] for i in range(500)] + [[]]), [0]
    # Vertices whose edges are more than one part, and more than one page; and weights for which the
    # widest bucket is just wide enough.
    hub = ([[(i, 1 + i * 7 % 100) for i in range(1, 3000)]]
           + [[((i * 31) % 3000, 1 + i % 13)] for i in range(1, 3000)])
    yield "hub", support.Graph.of_lists(hub), [0, 17]
    yield "far", support.Graph.of_lists([[(1, 2147483647)], [(2, 2147483647)], []]), [0]
    # A path that is too long, beside a shorter one.
    yield ("detour too long",
           support.Graph.of_lists([[(1, 100), (2, 1)], [(3, 4294967292)], [(1, 1)], []]), [0])
    for vertices, edges, most_weight in [(50, 100, 5), (400, 600, 100), (2000, 20000, 100),
                                         (300, 9000, 0), (1500, 6000, 1000000)]:
        yield (f"random {vertices} {edges} {most_weight}",
               random_graph(dice, vertices, edges, most_weight), [dice.randrange(vertices)])


def check_kinds(program, folder, dice):
    path, out = os.path.join(folder, "graph"), os.path.join(folder, "dist")
    for name, graph, sources in graphs(dice):
        support.write_graph(path, graph)
        for number, source in enumerate(sources):
            delta = (["--delta", dice.choice([1, 7, 100, 1000000000])]
                     if number > 0 or dice.random() < 0.3 else [])
            report = support.must_report(program, "run", path, "--source", source, "--method",
                                         support.methods(), "--rounds", 1, "-o", out, "--workers",
                                         dice.choice([1, 3]), *delta, *support.backend_flags())
            expected = graph.distances(source)
            support.require(support.read_distances(out) == expected,
                            f"{name} from {source}, {delta}: other distances")
            reached = [d for d in expected if d != support.UNREACHABLE]
            support.require((report["reached"], report["farthest"]) == (len(reached), max(reached)),
                            f"{name}: {report['reached']} reached, farthest {report['farthest']}")


def check_made(program, folder):
    paths = [os.path.join(folder, name) for name in ("one", "two", "other")]
    for path, more in zip(paths, [("--workers", 1), ("--workers", 3), ("--seed", 2)]):
        support.must_run(program, "make", "-o", path, "--vertices", 1500000, "--edges", 2500000,
                         "--quiet", *more)
    contents = [open(path, "rb").read() for path in paths]
    support.require(contents[0] == contents[1], "another number of threads makes another graph")
    support.require(contents[0] != contents[2], "another seed makes the same graph")
    report = support.must_report(program, "make", "-o", paths[0], "--vertices", 3000, "--edges",
                                 60000)
    graph = support.read_graph(paths[0])
    support.require(len(graph.offsets) == 3001 and len(graph.targets) == 60000
                    and min(graph.weights) >= 1 and max(graph.weights) <= 100,
                    "a made graph of another kind")
    degrees = [b - a for a, b in zip(graph.offsets, graph.offsets[1:])]
    support.require(max(degrees) == report["most_edges_of_a_vertex"] and max(degrees) > 5 * 20,
                    f"degrees are even: at most {max(degrees)}")
    reached = support.must_report(program, "run", paths[0], "--check", "--rounds", 1, "-o",
                                  paths[1], *support.backend_flags())
    support.require(reached["reached"] > 2900 and reached["rounds_checked"] == 2,
                    f"most vertices are not reached: {reached}")
    support.require(support.read_distances(paths[1]) == graph.distances(0),
                    "a made graph: other distances")


def main():
    program = sys.argv[1]
    dice = support.dice_from(20261123)
    with tempfile.TemporaryDirectory() as folder:
        check_kinds(program, folder, dice)
        check_made(program, folder)
    print("distances are right")


if __name__ == "__main__":
    main()
