/* The network on a carrier of the caller's, for net.c. See carrier.c. */
#ifndef LS_COMM_CARRIER_H
#define LS_COMM_CARRIER_H

#include "comm/net.h"

/* Opens the carrier. */
LS_MUST_CHECK ls_status ls__network_open(ls_network **out, const ls_carrier *carrier, int rank, int size);
/* `healthy`: what was sent arrives. Otherwise the network's memory is left to the carrier, which may still use it. */
void ls__network_close(ls_network **network, bool healthy);
/* As those of net.h. */
LS_MUST_CHECK ls_status ls__network_send(ls_network *n, const void *data, size_t bytes, int to, int tag, bool matched,
                                         ls__net_request *out);
LS_MUST_CHECK ls_status ls__network_recv(ls_network *n, void *data, size_t bytes, int from, int tag,
                                         ls__net_request *out);
LS_MUST_CHECK ls_status ls__network_test(ls_network *n, ls__net_request *const *requests, int count);
void ls__network_cancel(ls_network *n, ls__net_request *request);

#endif
