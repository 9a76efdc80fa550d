/* lockstep/lockstep.h: all public headers. Each of them can also be included alone, in any order, from C11 and C++17. */
#ifndef LOCKSTEP_LOCKSTEP_H
#define LOCKSTEP_LOCKSTEP_H

#include "lockstep/base.h"
#include "lockstep/comm.h"
#include "lockstep/data.h"
#include "lockstep/ddp.h"
#include "lockstep/import.h"
#include "lockstep/measure.h"
#include "lockstep/nn.h"
#include "lockstep/predict.h"
#include "lockstep/record.h"
#include "lockstep/tensor.h"
#include "lockstep/train.h"

#endif
