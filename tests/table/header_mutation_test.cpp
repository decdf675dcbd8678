// Good headers with bytes changed, cut and added at random: nothing crashes, and a layout that is
// handed out lies inside its files. The seed is fixed, so a failure comes again.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "table/support.hpp"

namespace penstock::test {

namespace {

constexpr int changed_headers = 4000;

// What headers are made of, so that a change hits more than a parser's first step.
const std::vector<std::string> words = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        "(",
                                        ")",
                                        ",",
                                        ":",
                                        "\"",
                                        "'",
                                        "\\",
                                        "-1",
                                        "0",
                                        "1",
                                        "255",
                                        "65536",
                                        "4294967296",
                                        "18446744073709551615",
                                        "99999999999999999999",
                                        "1e9",
                                        "true",
                                        "null",
                                        "<f8",
                                        ">f4",
                                        "|V7",
                                        "F64",
                                        "BF16",
                                        "F4",
                                        "L",
                                        "True",
                                        "shape",
                                        "dtype",
                                        "descr",
                                        "..",
                                        "/",
                                        "\n",
                                        "\xff",
                                        "data_offsets",
                                        "fortran_order",
                                        "__metadata__",
                                        "\"t\":",
                                        "'shape': (3,)"};

class header_changer {
public:
    explicit header_changer(std::uint64_t seed) : random_(seed) {}

    // `head_bytes`: how much of the file is its header.
    std::string change(std::string bytes, std::size_t head_bytes) {
        for (std::uint64_t changes = 1 + below(3); changes > 0; --changes) {
            const std::size_t place = below(std::min(head_bytes, bytes.size()) + 1);
            const std::string& word = words[below(words.size())];
            switch (below(6)) {
                case 0: flip(bytes, place); break;
                case 1: bytes.resize(below(bytes.size() + 1)); break;
                case 2: bytes.insert(place, word); break;
                case 3: bytes.replace(place, word.size(), word); break;
                case 4: bytes.erase(place, 1 + below(8)); break;
                default: bytes.insert(place, bytes.substr(below(place + 1), below(64))); break;
            }
        }
        return bytes;
    }

private:
    std::size_t below(std::size_t limit) { return random_() % limit; }
    void flip(std::string& bytes, std::size_t place) {
        if (place < bytes.size()) bytes[place] = static_cast<char>(bytes[place] ^ 1 << below(8));
    }

    std::mt19937_64 random_;
};

}  // namespace

class changed_files : public table_folder {
protected:
    // How many changed files were taken and refused. `rest` is kept as it is.
    void change(const std::string& name, const std::string& good, std::size_t head_bytes,
                const std::function<status(table_layout&)>& describes) {
        table_layout rows;
        made(name, good);
        ASSERT_TRUE(describes(rows)) << "the file is good before it is changed";
        header_changer changer(good.size());
        for (int i = 0; i < changed_headers; ++i) {
            made(name, changer.change(good, head_bytes));
            table_layout out;
            const status s = describes(out);
            if (s.ok()) {
                ++taken;
                expect_inside(out, name + " " + std::to_string(i));
            } else {
                ++refused;
                expect_refused(s, s.code, folder, out, name + " " + std::to_string(i));
            }
            if (HasFailure()) return;
        }
        EXPECT_GT(refused, changed_headers / 4);
        EXPECT_GT(taken, 0) << "no change was harmless: the check above saw nothing";
        taken = refused = 0;
    }

    int taken = 0, refused = 0;
};

TEST_F(changed_files, npy) {
    for (const int major : {1, 2, 3}) {
        const std::string good = npy_bytes(npy_text("<f4", "(3, 5, 2)"), 120, major);
        change("a.npy", good, good.size() - 120,
               [&](table_layout& out) { return describe_npy(at("a.npy"), out); });
    }
}

TEST_F(changed_files, safetensors) {
    const std::string good = safetensors_bytes("{\"__metadata__\":{\"format\":\"pt\"}," +
                                                   entry_text("t", "F32", "[3,2,5]", 0, 120) + "," +
                                                   entry_text("u", "BF16", "[7]", 120, 134) + "}",
                                               134);
    change("m.safetensors", good, good.size() - 134,
           [&](table_layout& out) { return describe_safetensors(at("m.safetensors"), "t", out); });
    change("m.safetensors", good, good.size() - 134,
           [&](table_layout& out) { return describe(at("m.safetensors"), "*t*", out); });
}

TEST_F(changed_files, index_of_a_checkpoint) {
    made("x.safetensors", safetensors_bytes("{" + entry_text("s_2", "U8", "[2,4]", 0, 8) + "}", 8));
    made("y.safetensors",
         safetensors_bytes("{" + entry_text("s_10", "U8", "[1,4]", 0, 4) + "}", 4));
    const std::string good =
        "{\"metadata\":{\"total_size\":12},\"weight_map\":{\"s_2\":\"x.safetensors\","
        "\"s_10\":\"y.safetensors\"}}";
    change("m.safetensors.index.json", good, good.size(),
           [&](table_layout& out) { return describe(at("m.safetensors.index.json"), "s_*", out); });
}

}  // namespace penstock::test
