// The command line of the model test of writes, shared by the real one and by its canary.
#pragma once

#include <cstdlib>
#include <string>

#include "model/write_run.hpp"

namespace penstock::model {

struct write_command_line {
    write_settings settings;
    std::uint64_t seeds = 1;
    bool lane = false, racing = false, wrong = false;

    write_command_line(int count, char** words) {
        for (int i = 1; i < count; ++i) {
            const std::string word = words[i];
            if (word == "--lane") lane = true;
            else if (word == "--racing") racing = true;
            else if (word == "--drop") settings.drop_writes = true;
            else if (i + 1 < count) take(word, words[++i]);
            else wrong = true;
        }
        if (!lane && !racing) lane = racing = true;
        if (settings.threads == 0 || settings.threads > 64) wrong = true;
    }

private:
    void take(const std::string& word, const char* text) {
        char* end = nullptr;
        const std::uint64_t value = std::strtoull(text, &end, 0);
        if (*end != '\0' || *text == '\0') wrong = true;
        else if (word == "--seed") settings.seed = value;
        else if (word == "--seeds") seeds = value;
        else if (word == "--operations") settings.operations = value;
        else if (word == "--threads") settings.threads = static_cast<std::uint32_t>(value);
        else wrong = true;
    }
};

inline int write_usage(const char* program) {
    std::cerr << "usage: " << program
              << " [--seed N] [--seeds N] [--operations N] [--threads 1..64] [--lane] [--racing] "
                 "[--drop]\n"
                 "Writes and reads files at random through tiny caches and compares every byte. "
                 "--seeds runs so many seeds from --seed on;\n"
                 "--drop loses one write to a file in a thousand, and the run must then fail.\n";
    return 2;
}

}  // namespace penstock::model
